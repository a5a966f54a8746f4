// The frame of `explain` is as high as its content.
document$.subscribe(() => {
  for (const frame of document.querySelectorAll("iframe.explained")) {
    const fit = () => { frame.style.height = `${frame.contentDocument.body.scrollHeight + 24}px` }
    frame.addEventListener("load", () => {
      fit()
      new ResizeObserver(fit).observe(frame.contentDocument.body)
    })
  }
})
