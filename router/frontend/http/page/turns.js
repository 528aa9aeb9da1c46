"use strict";

// --- Questions and answers as elements ---

function fold(className, title) {
  const details = make("details", `fold ${className}`);
  const summary = make("summary", "", title);
  details.append(summary);
  return { details, summary };
}

// "51 tokens · 265.3 tokens/s · first token after 28 ms · prompt of 27 tokens, 16 cached"
function factsText({ facts = {} }) {
  const parts = [];
  if (facts.n) parts.push(`${facts.n} ${facts.n === 1 ? "token" : "tokens"}`);
  if (facts.rate) parts.push(`${facts.rate.toFixed(1)} tokens/s`);
  if (facts.first !== undefined) parts.push(`first token after ${Math.round(facts.first)} ms`);
  if (facts.prompt) {
    const tiers = Object.entries(facts.stored ?? {}).filter(([, n]) => n > 0).map(([tier, n]) => `${n} from ${kTierNames[tier] ?? tier}`);
    const cached = facts.cached ? `, ${facts.cached} cached${tiers.length ? ` (${tiers.join(", ")})` : ""}` : "";
    parts.push(`prompt of ${facts.prompt} tokens${cached}`);
  }
  if (facts.reasoning) parts.push(`${facts.reasoning} tokens of thinking`);
  if (facts.reason === "length") parts.push("cut off: the token limit was reached");
  if (facts.lost) parts.push("connection lost, reconnecting");
  if (facts.stopped) parts.push("stopped");
  return parts.join(" · ");
}

const kTierNames = { host: "host memory", disk: "disk", store: "the store" };

class QuestionView {
  constructor(message, { edit }) {
    this.message = message;
    this.turn = make("article", "turn user");
    this.turn.setAttribute("aria-label", "You");
    this.body = make("div", "text", message.content);
    this.edit = edit;
    const actions = make("div", "actions");
    this.editButton = iconButton("edit", "Edit this question", () => this.beginEdit());
    actions.append(this.editButton, copyButton("Copy this question", () => message.content));
    this.turn.append(this.body, actions);
  }
  beginEdit() {
    if (this.turn.classList.contains("editing")) return;
    this.turn.classList.add("editing");
    const form = make("form", "edit");
    const area = make("textarea");
    area.value = this.message.content;
    area.rows = Math.min(10, area.value.split("\n").length + 1);
    area.setAttribute("aria-label", "The question");
    const cancel = make("button", "", "Cancel");
    cancel.type = "button";
    const end = () => {
      form.remove();
      this.turn.classList.remove("editing");
      this.editButton.focus();
    };
    cancel.addEventListener("click", end);
    const buttons = make("div", "buttons");
    buttons.append(cancel, make("button", "main", "Ask again"));
    form.append(area, buttons);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!area.value.trim()) return;
      end();
      this.edit(this.message, area.value.trim());
    });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      } else if (isSendKey(event)) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    this.turn.prepend(form);
    area.focus();
  }
}

const isSendKey = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;

class AnswerView {
  // `isRunning`: it is being written.
  constructor(message, { again }, isRunning) {
    this.message = message;
    this.turn = make("article", "turn assistant");
    this.turn.setAttribute("aria-label", "Answer");
    this.thinking = fold("thinking", "Thinking");
    this.thinkingBody = make("div", "markdown");
    this.thinking.details.append(this.thinkingBody);
    this.thinkingView = new MarkdownView(this.thinkingBody);
    this.body = make("div", `text ${message.mode === "json" ? "values" : "markdown"}`);
    this.content = message.mode === "json" && message.values ? new JsonView(this.body) : new MarkdownView(this.body);
    this.calls = make("div", "calls");
    this.notes = make("ul", "notes");
    this.facts = make("div", "facts");
    this.actions = make("div", "actions");
    this.tokensButton = iconButton("tokens", "Show tokens and their alternatives", () => this.toggleTokens());
    this.tokensButton.setAttribute("aria-pressed", "false");
    this.actions.append(iconButton("again", "Answer again", () => again(message)), copyButton("Copy this answer", () => message.content),
      this.tokensButton);
    const foot = make("div", "foot");
    foot.append(this.facts, this.actions);
    this.turn.append(this.thinking.details, this.calls, this.body, this.notes, foot);
    this.n_said = 0;
    this.draw = onceAFrame(() => this.update());
    this.setRunning(isRunning);
    this.update();
  }
  setRunning(isRunning) {
    this.isRunning = isRunning;
    this.turn.classList.toggle("running", isRunning);
    this.turn.setAttribute("aria-busy", String(isRunning));
  }
  update() {
    const { message } = this;
    const log = $("log");
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    const n_complete = this.content instanceof JsonView ? (this.content.show(message.values), 0) : this.content.show(message.content);
    this.body.hidden = !this.isRunning && !message.content;
    this.thinking.details.hidden = !message.thinking;
    if (message.thinking) this.thinkingView.show(message.thinking);
    this.showCalls();
    this.showNotes();
    this.facts.replaceChildren(factsText(message));
    if (message.error) {
      const failure = make("span", "failure", message.error);
      failure.setAttribute("role", "alert");
      this.facts.append(this.facts.textContent ? " · " : "", failure);
    }
    this.turn.classList.toggle("lost", Boolean(message.facts?.lost));
    this.actions.hidden = this.isRunning;
    this.tokensButton.hidden = !message.tokens?.length;
    this.sayBlocks(n_complete);
    if (atEnd && this.isRunning) log.scrollTop = log.scrollHeight;
  }
  // A screen reader hears whole blocks, not every token.
  sayBlocks(n_complete) {
    if (!this.isRunning) return;
    for (; this.n_said < n_complete; ++this.n_said) announce(this.content.textOf(this.n_said));
  }
  end() {
    this.setRunning(true);  // for the last announcement
    this.update();
    if (this.content instanceof JsonView) {
      announce(this.message.values.map(([path, text]) => `${pathName(path)}: ${text}`).join(", "));
    } else {
      this.sayBlocks(this.content.shown.length);
    }
    this.setRunning(false);
    this.update();
  }
  showCalls() {
    const calls = this.message.calls ?? [];
    while (this.calls.childElementCount < calls.length) {
      const { details, summary } = fold("call", "");
      summary.append("Tool ", make("b", "name"), make("span", "about"));
      details.append(make("p", "soft", "Arguments"), make("pre", "args"), make("p", "soft", "Result"), make("pre", "result"));
      for (const pre of details.querySelectorAll("pre")) pre.tabIndex = 0;
      this.calls.append(details);
    }
    calls.forEach(({ name, args, result }, i) => {
      const details = this.calls.children[i];
      details.querySelector(".name").textContent = name;
      details.querySelector(".about").textContent = args.replace(/["{}]/g, "").replaceAll(":", ": ").replaceAll(",", ", ");
      details.querySelector(".args").textContent = args;
      details.querySelector(".result").textContent = result ?? "";
    });
  }
  showNotes() {
    const notes = Object.values(this.message.notes ?? {});
    this.notes.hidden = !notes.length;
    if ([...this.notes.children].map((note) => note.textContent).join("\n") === notes.join("\n")) return;
    this.notes.replaceChildren(...notes.map((note) => make("li", "", note)));
  }
  toggleTokens() {
    const isOn = this.tokensButton.getAttribute("aria-pressed") !== "true";
    this.tokensButton.setAttribute("aria-pressed", String(isOn));
    this.turn.querySelector(".tokens")?.remove();
    this.body.hidden = isOn;
    if (!isOn) return hideTip();
    const view = tokenView(this.message.tokens);
    this.body.after(view);
    view.focus();
  }
}
