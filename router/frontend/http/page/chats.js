"use strict";

// --- The list of chats, and the one that is shown ---

let chats = store.chats();
let current = null;

const kExamples = [
  "When does the first coach leave Greywell for Elmstead on Sunday?",
  "Everything that leaves from Coldwater on weekdays?",
  "What do 2 adults and 3 children pay from Foxhollow to Inkwell?",
];

function welcome() {
  const box = make("div", "welcome");
  box.append(make("h2", "", "Ask the model something"),
    make("p", "", "The stages in the panel compute the answer. Kill the process of one meanwhile: the answer goes on."));
  if (status?.model === "demo-model") {
    const list = make("ul", "examples");
    for (const example of kExamples) {
      const item = make("li");
      const button = make("button", "", example);
      button.type = "button";
      button.addEventListener("click", () => askIn(current, example));
      item.append(button);
      list.append(item);
    }
    box.append(list);
  }
  return box;
}

function viewOf(chat, message) {
  if (message.role === "user") return new QuestionView(message, { edit: (one, content) => editQuestion(chat, one, content) });
  return new AnswerView(message, { again: (one) => answerAgain(chat, one) }, running.get(chat.id)?.message === message);
}

function showChat(chat) {
  current = chat;
  if (!chats.includes(chat)) chats.unshift(chat);
  for (const run of running.values()) run.view = null;
  const views = chat.messages.map((message) => viewOf(chat, message));
  $("log").replaceChildren(...(views.length ? views.map((view) => view.turn) : [welcome()]));
  const run = running.get(chat.id);
  if (run) run.view = views[chat.messages.indexOf(run.message)];
  hideTip();
  $("log").scrollTop = $("log").scrollHeight;
  document.querySelector(`input[name=mode][value=${chat.mode}]`).checked = true;
  showMode();
  showButtons();
  showList();
}

// Shows an answer that begins, or that ended.
function showRun(run) {
  if (run.chat === current) {
    if (running.get(run.chat.id) === run && !run.view) {
      run.view = viewOf(run.chat, run.message);
      $("log").append(run.view.turn);
      $("log").scrollTop = $("log").scrollHeight;
    }
    showButtons();
  }
  showList();
}

function showButtons() {
  const isRunning = running.has(current.id);
  $("send").textContent = isRunning ? "Stop" : "Send";
  $("send").classList.toggle("stop", isRunning);
}

function addNew() {
  closeDrawers();
  // One empty chat is enough.
  const empty = chats.find((chat) => !chat.messages.length);
  if (empty) chats = chats.filter((chat) => chat !== empty);
  showChat(newChat());
  $("question").focus();
}

function rename(chat, item) {
  const input = make("input", "rename");
  input.value = chat.title;
  input.setAttribute("aria-label", "Name of the chat");
  let ended = false;  // removing the input makes it lose the focus, which ends it, too
  const end = (keep) => {
    if (ended) return;
    ended = true;
    if (keep && input.value.trim()) chat.title = input.value.trim();
    input.remove();
    store.save(chat);
    showList();
    document.querySelector(`[data-chat="${chat.id}"] .open`)?.focus();
  };
  input.addEventListener("blur", () => end(true));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") end(true);
    if (event.key === "Escape") {
      event.stopPropagation();
      end(false);
    }
  });
  item.replaceChildren(input);
  input.focus();
  input.select();
}

function remove(chat) {
  $("confirm-name").textContent = chat.title;
  $("confirm").returnValue = "cancel";
  $("confirm").addEventListener("close", () => {
    if ($("confirm").returnValue !== "delete") return;
    stopAnswer(chat);
    store.remove(chat);
    chats = chats.filter((one) => one !== chat);
    if (chat === current) showChat(chats[0] ?? newChat());
    else showList();
    $("new").focus();
  }, { once: true });
  $("confirm").showModal();
}

function showList() {
  if ($("chat-list").querySelector(".rename")) return;  // not while a name is written
  const focused = document.activeElement?.closest?.("[data-chat]")?.dataset.chat;
  const shown = [...chats].sort((a, b) => b.updated - a.updated);
  $("chat-list").replaceChildren(...shown.map((chat) => {
    const item = make("li", running.has(chat.id) ? "busy" : "");
    item.dataset.chat = chat.id;
    const open = make("button", "open", chat.title || "New chat");
    open.type = "button";
    if (chat === current) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => {
      closeDrawers();
      showChat(chat);
      $("question").focus();
    });
    item.append(open);
    if (chat.messages.length) {
      item.append(iconButton("edit", `Rename ${chat.title}`, () => rename(chat, item)),
        iconButton("bin", `Delete ${chat.title}`, () => remove(chat)));
    }
    return item;
  }));
  if (focused) document.querySelector(`[data-chat="${focused}"] .open`)?.focus();
}
