"use strict";

// --- The frame of the page: drawers of narrow windows, keys, the beginning and the end ---

const kDrawers = { chats: "open-chats", pipeline: "strip" };

function closeDrawers() {
  $("shade-all").hidden = true;
  document.querySelector("main").inert = $("bar").inert = false;
  for (const [name, opener] of Object.entries(kDrawers)) {
    if (!document.body.classList.contains(`show-${name}`)) continue;
    document.body.classList.remove(`show-${name}`);
    $(opener).setAttribute("aria-expanded", "false");
    $(opener).focus();
  }
}

function openDrawer(name) {
  closeDrawers();
  document.body.classList.add(`show-${name}`);
  $(kDrawers[name]).setAttribute("aria-expanded", "true");
  $("shade-all").hidden = false;
  document.querySelector("main").inert = $("bar").inert = true;
  $(name).querySelector("button:not([hidden])").focus();
}

function place(button, name) {
  $(button).append(icon(name));
  $(button).title = $(button).getAttribute("aria-label");
}

place("open-chats", "menu");
place("open-settings", "settings");
place("open-keys", "keyboard");
place("close-pipeline", "close");
$("new").prepend(icon("plus"));
$("new").addEventListener("click", addNew);
$("open-chats").addEventListener("click", () => openDrawer("chats"));
$("strip").addEventListener("click", () => openDrawer("pipeline"));
$("close-pipeline").addEventListener("click", closeDrawers);
$("shade-all").addEventListener("click", closeDrawers);
$("log").addEventListener("scroll", hideTip);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (!$("shade-all").hidden) closeDrawers();
    else stopAnswer(current);
  }
  if (event.altKey && event.code === "KeyN") {
    event.preventDefault();
    addNew();
  }
});
matchMedia("(max-width: 60rem)").addEventListener("change", closeDrawers);
// Another window of this page has changed a chat.
addEventListener("storage", (event) => {
  if (!event.key?.startsWith(kChatPrefix) || running.size) return;
  chats = store.chats();
  const same = chats.find((chat) => chat.id === current.id);
  if (same) showChat(same);
  else showList();
});
addEventListener("pagehide", () => {
  for (const { chat, message, controller } of running.values()) {
    message.facts.stopped = true;
    store.save(chat);
    controller.abort();
  }
});
store.save(newChat());  // says at once if chats are not kept
showChat(chats[0] ?? newChat());
poll();
