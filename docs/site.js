// The frame of `explain` is as high as its content.
document$.subscribe(() => {
  for (const frame of document.querySelectorAll("iframe.explained")) {
    const follow = () => {
      const body = frame.contentDocument.body
      new ResizeObserver(() => { frame.style.height = `${body.scrollHeight + 24}px` }).observe(body)
    }
    frame.addEventListener("load", follow)
    if (frame.contentDocument?.readyState === "complete") follow()
  }
})
