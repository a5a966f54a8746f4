"""What tests share: how programs are compiled, drawn arrays, and what each op should give. No test lives here."""
