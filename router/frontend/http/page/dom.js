"use strict";

// --- Elements. Text becomes text nodes only: the policy of the page forbids to parse it as HTML. ---

const $ = (id) => document.getElementById(id);

function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

const kIcons = {
  menu: "M3 5h14M3 10h14M3 15h14",
  plus: "M10 4v12M4 10h12",
  settings: "M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4",
  keyboard: "M2 5h16v10H2zM5 8h0M8 8h0M11 8h0M14 8h0M6 12h8",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h9v9H7zM4 13V4h9",
  again: "M16 10a6 6 0 1 1-2-4.5M16 3v3.5h-3.5",
  edit: "M4 16l1-4 8-8 3 3-8 8zM11.5 5.5l3 3",
  bin: "M4 6h12M8 6V4h4v2M6 6l1 10h6l1-10",
  tokens: "M3 6h4M9 6h8M3 10h7M12 10h5M3 14h3M8 14h9",
};

function icon(name) {
  const kSvg = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(kSvg, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(kSvg, "path");
  path.setAttribute("d", kIcons[name]);
  svg.append(path);
  return svg;
}

// A button with an icon. `label` is its name and its tooltip.
function iconButton(name, label, onClick) {
  const button = make("button", "quiet icon");
  button.type = "button";
  button.setAttribute("aria-label", label);
  button.title = label;
  button.append(icon(name));
  button.addEventListener("click", onClick);
  return button;
}

// Has screen readers say `text` after what they say now.
function announce(text) {
  const kMost = 20;
  $("announcer").append(make("p", "", text));
  while ($("announcer").childElementCount > kMost) $("announcer").firstElementChild.remove();
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // no permission, or no clipboard because the page came over plain HTTP
    const area = make("textarea", "unseen");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce("Copied");
}

function copyButton(label, textOf) {
  const button = iconButton("copy", label, async () => {
    await copyText(textOf());
    button.classList.add("done");
    button.focus();
  });
  button.addEventListener("blur", () => button.classList.remove("done"));
  button.addEventListener("pointerleave", () => button.classList.remove("done"));
  return button;
}

// Calls `draw` once before the next picture, however often the result is called before that.
function onceAFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
