"use strict";

// --- Chats, kept in the browser's storage for this server's address ---

const kChatPrefix = "stagecoach.chat.";
const kDefaultSchema = JSON.stringify({
  type: "object",
  properties: {
    from: { type: "string" },
    to: { type: "string" },
    day: { enum: ["weekday", "saturday", "sunday"] },
    departures: { type: "array", items: { type: "string" }, maxItems: 8 },
  },
  required: ["from", "to", "day", "departures"],
  additionalProperties: false,
}, null, 2);

const kModes = ["text", "json", "tool"];

function newChat() {
  return {
    id: Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join(""),
    title: "", updated: Date.now(), mode: "text", system: "", temperature: "", top_p: "", max_tokens: "", seed: "",
    tool_choice: "auto", schema: kDefaultSchema, messages: [],
  };
}

// What another version of the page has written may lack fields, or be damaged.
function readChat(text) {
  try {
    const chat = JSON.parse(text);
    if (typeof chat.id !== "string" || !Array.isArray(chat.messages)) return null;
    const isMessage = (one) => (one?.role === "user" || one?.role === "assistant") && typeof one.content === "string";
    if (!chat.messages.every(isMessage)) return null;
    return { ...newChat(), ...chat, mode: kModes.includes(chat.mode) ? chat.mode : "text" };
  } catch {
    return null;
  }
}

const store = {
  // The storage may be switched off: reading the property then throws.
  get storage() {
    try {
      return window.localStorage;
    } catch {
      return null;
    }
  },
  chats() {
    const keys = Object.keys(this.storage ?? {}).filter((key) => key.startsWith(kChatPrefix));
    return keys.map((key) => readChat(this.storage.getItem(key))).filter(Boolean).sort((a, b) => b.updated - a.updated);
  },
  // An empty chat is not worth keeping. Tells in the list of chats if there is no room.
  save(chat) {
    let trouble = this.storage ? "" : "This browser keeps no chats for this page: they end with it.";
    if (this.storage && chat.messages.length && !chat.deleted) {
      try {
        this.storage.setItem(kChatPrefix + chat.id, JSON.stringify(chat));
      } catch {
        trouble = "The browser's storage for this page is full: what is new in this chat ends with the page. Delete chats to make room.";
      }
    }
    if (trouble && $("store-note").textContent !== trouble) $("store-note").textContent = trouble;
    $("store-note").hidden = !trouble;
  },
  remove(chat) {
    chat.deleted = true;  // an answer in progress must not bring it back
    this.storage?.removeItem(kChatPrefix + chat.id);
    $("store-note").hidden = true;
  },
};
