// Returns what is wrong with the layout of the page, as a list of sentences.
(() => {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  const short = (node) => JSON.stringify(node.textContent.trim().slice(0, 40));
  const visible = (element) => element.checkVisibility() && element.getBoundingClientRect().right > 0;

  if (document.documentElement.scrollWidth > width) {
    wrong.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${width}`);
  }
  for (const element of document.body.querySelectorAll("*")) {
    if (!visible(element)) continue;
    const { left, right } = element.getBoundingClientRect();
    if (left < -0.5 || right > width + 0.5) {
      wrong.push(`${element.tagName} ${short(element)} reaches from ${left} to ${right}`);
    }
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible") {
      wrong.push(`${element.tagName} ${short(element)} must be scrolled sideways`);
    }
  }

  // The text of a choice is not in the document, so its width is that of a copy.
  for (const select of document.querySelectorAll("select")) {
    if (!visible(select)) continue;
    for (const option of select.options) {
      const copy = document.createElement("span");
      copy.textContent = option.textContent;
      copy.style.cssText = `position: absolute; white-space: nowrap; font: ${getComputedStyle(select).font}`;
      document.body.append(copy);
      // The arrow and the padding need 30 pixels.
      if (copy.getBoundingClientRect().width + 30 > select.clientWidth) {
        wrong.push(`the choice ${short(option)} is wider than ${select.name}`);
      }
      copy.remove();
    }
  }

  // All lines of text, with their places.
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("script, style, option") || !visible(parent)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const places = parent.ownerSVGElement ? [parent.getBoundingClientRect()] : range.getClientRects();
    for (const place of places) {
      if (place.width > 0 && place.right > 0) lines.push({ node, place });
    }
    const style = getComputedStyle(parent);
    if (parseFloat(style.fontSize) < 12) wrong.push(`${short(node)} has letters of ${style.fontSize}`);
    if (contrast(parent, style) < 4.5) wrong.push(`${short(node)} has a contrast of ${contrast(parent, style)}`);
    const name = parent.closest(".client");
    if (name && (name.textContent.startsWith("reqwest-steady") || name.textContent === "your settings") !==
        (parseInt(style.fontWeight) >= 600)) {
      wrong.push(`${short(node)} has a weight of ${style.fontWeight}`);
    }
  }
  lines.sort((one, other) => one.place.top - other.place.top);
  lines.forEach(({ node, place }, index) => {
    for (let next = index + 1; next < lines.length && lines[next].place.top < place.bottom - 1; next++) {
      const other = lines[next].place;
      if (other.left < place.right - 1 && place.left < other.right - 1) {
        wrong.push(`${short(node)} overlaps ${short(lines[next].node)}`);
      }
    }
    const section = node.parentElement.closest("section, figure");
    if (section) {
      const edge = section.getBoundingClientRect();
      if (place.left < edge.left - 0.5 || place.right > edge.right + 0.5 || place.top < edge.top - 0.5 ||
          place.bottom > edge.bottom + 0.5) {
        wrong.push(`${short(node)} leaves its frame`);
      }
    }
  });

  // Every chart has two axes with ticks, in order, beside what they mean, and a unit at each axis.
  const planes = [...document.querySelectorAll(".plane")];
  for (const plane of planes) {
    const drawing = plane.querySelector(".drawing").getBoundingClientRect();
    const title = short(plane.closest("figure").querySelector("figcaption"));
    for (const axis of ["x", "y"]) {
      const ticks = [...plane.querySelectorAll(`.${axis} text`)];
      if (ticks.length < 2) wrong.push(`${title} has ${ticks.length} ticks on its ${axis} axis`);
      if (!ticks.some((tick) => /\d(\/s| [a-z]+)$/.test(tick.textContent))) {
        wrong.push(`${title} has an ${axis} axis without a unit`);
      }
      let last = -Infinity;
      for (const tick of ticks) {
        const value = parseFloat(tick.textContent.replaceAll(",", ""));
        if (!(value > last)) wrong.push(`${title} has ticks out of order on its ${axis} axis`);
        last = value;
        const place = tick.getBoundingClientRect();
        const inside = axis === "y"
          ? (place.top + place.bottom) / 2 > drawing.top - 3 && (place.top + place.bottom) / 2 < drawing.bottom + 3
          : place.right > drawing.left && place.left < drawing.right;
        if (!inside) wrong.push(`${title} has a tick beside its ${axis} axis`);
      }
    }
  }
  if (planes.length === 0) wrong.push("there is no chart");
  for (const axis of document.querySelectorAll(".outcome.axis")) {
    for (const panel of axis.querySelectorAll(".ticks")) {
      if (panel.querySelectorAll("text").length < 2) wrong.push("outcomes have an axis without ticks");
    }
  }
  return wrong;

  // The contrast between a text and the nearest background, as WCAG defines it.
  function contrast(element, style) {
    let behind = element;
    while (behind && /, 0\)$|transparent/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const paper = behind ? getComputedStyle(behind).backgroundColor : "rgb(255, 255, 255)";
    const [one, other] = [element.ownerSVGElement ? style.fill : style.color, paper].map((colour) => {
      const [red, green, blue] = colour.match(/[\d.]+/g).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    });
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  }
})()
