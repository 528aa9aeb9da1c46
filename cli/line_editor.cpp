#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <iostream>
#include <string_view>

#include "cli/history_file.h"
#include "common/check.h"

namespace stagecoach::cli {
namespace {

constexpr char kPasteOn[] = "\x1b[?2004h";  // the terminal marks pasted text
constexpr char kPasteOff[] = "\x1b[?2004l";
constexpr wchar_t kInterruptKey = 0x03;
constexpr int kMostHistory = 1000;

void Say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

class TerminalEditor final : public LineEditor {
 public:
  TerminalEditor(std::string prompt, std::string history_path)
      : prompt_(std::move(prompt)), history_path_(std::move(history_path)) {
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    SC_CHECK(wake_ >= 0);
    edit_ = el_init("stagecoach", stdin, stdout, stderr);
    history_ = history_init();
    SC_CHECK(edit_ != nullptr && history_ != nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kMostHistory);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_path_.empty() && !MakeHistoryFolder(history_path_)) history_path_.clear();
    if (!history_path_.empty()) history(history_, &event, H_LOAD, history_path_.c_str());
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_PROMPT, &TerminalEditor::Prompt);
    el_set(edit_, EL_GETCFN, &TerminalEditor::GetCharacter);
    // The wide calls keep these pointers. The narrow ones keep copies that libedit never frees.
    el_wset(edit_, EL_ADDFN, L"sc-paste", L"insert pasted text", &TerminalEditor::Paste);
    el_wset(edit_, EL_ADDFN, L"sc-newline", L"begin a new line", &TerminalEditor::NewLine);
    el_wset(edit_, EL_ADDFN, L"sc-interrupt", L"give up the line", &TerminalEditor::GiveUp);
    el_set(edit_, EL_BIND, "\\e[200~", "sc-paste", nullptr);
    el_set(edit_, EL_BIND, "\\e\\r", "sc-newline", nullptr);
    el_set(edit_, EL_BIND, "^C", "sc-interrupt", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    for (const auto& [keys, action] :
         {std::pair{"\\e[3~", "ed-delete-next-char"}, std::pair{"\\e[1;5D", "ed-prev-word"},
          std::pair{"\\e[1;5C", "em-next-word"}, std::pair{"\\e[H", "ed-move-to-beg"},
          std::pair{"\\e[F", "ed-move-to-end"}}) {
      el_set(edit_, EL_BIND, keys, action, nullptr);
    }
    el_source(edit_, nullptr);
  }
  ~TerminalEditor() override {
    el_end(edit_);
    history_end(history_);
    close(wake_);
  }

  std::optional<Line> Read() override {
    interrupted_ = false;
    el_resize(edit_);
    // Raw mode before the prompt: el_gets enters it only after the prompt, and the terminal would
    // swallow a ctrl-D that is typed in between.
    el_set(edit_, EL_PREP_TERM, 1);
    Say(kPasteOn);
    int n_bytes = 0;
    const char* bytes = el_gets(edit_, &n_bytes);
    Say(kPasteOff);
    if (interrupted_) return Line{.text = "", .interrupted = true};
    if (bytes == nullptr || n_bytes <= 0) return std::nullopt;
    Line line{.text = std::string(bytes, static_cast<size_t>(n_bytes)), .interrupted = false};
    while (line.text.ends_with('\n')) line.text.pop_back();
    if (line.text.find_first_not_of(" \t\n") != std::string::npos) {
      HistEvent event;
      history(history_, &event, H_ENTER, line.text.c_str());
      // At once: a killed program keeps its history, too. The library lets only this user read it.
      if (!history_path_.empty()) history(history_, &event, H_SAVE, history_path_.c_str());
    }
    return line;
  }

  void Interrupt() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  }

 private:
  static TerminalEditor* Self(EditLine* edit) {
    TerminalEditor* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self;
  }
  static char* Prompt(EditLine* edit) { return Self(edit)->prompt_.data(); }

  // Reads a character from the terminal. An interrupt is returned as the key ^C.
  static int GetCharacter(EditLine* edit, wchar_t* character) {
    TerminalEditor* self = Self(edit);
    std::mbstate_t state{};
    while (true) {
      pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {self->wake_, POLLIN, 0}};
      if (poll(sources, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return -1;
      }
      if (sources[1].revents != 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t n = read(self->wake_, &count, sizeof count);
        *character = kInterruptKey;
        return 1;
      }
      char byte = 0;
      const ssize_t n = read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return static_cast<int>(n);
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // the character has more bytes
      if (used == static_cast<size_t>(-1)) *character = L'?';
      return 1;
    }
  }

  // Inserts the text between the terminal's paste marks, including line breaks.
  static unsigned char Paste(EditLine* edit, int) {
    constexpr std::wstring_view kEnd = L"\x1b[201~";
    std::wstring text;
    while (!text.ends_with(kEnd)) {
      wchar_t character = 0;
      if (el_wgetc(edit, &character) != 1) return CC_EOF;
      text += character == L'\r' ? L'\n' : character;
    }
    text.resize(text.size() - kEnd.size());
    while (text.ends_with(L'\n')) text.pop_back();
    for (wchar_t& character : text) {
      if (character == L'\t') character = L' ';
    }
    return el_winsertstr(edit, text.c_str()) == 0 || text.empty() ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char NewLine(EditLine* edit, int) {
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char GiveUp(EditLine* edit, int) {
    Self(edit)->interrupted_ = true;
    return CC_EOF;
  }

  std::string prompt_;
  std::string history_path_;  // empty: none
  int wake_ = -1;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  bool interrupted_ = false;
};

class PlainReader final : public LineEditor {
 public:
  std::optional<Line> Read() override {
    Line line;
    if (!std::getline(std::cin, line.text)) return std::nullopt;
    return line;
  }
  void Interrupt() override {}
};

}  // namespace

std::unique_ptr<LineEditor> MakeTerminalEditor(const std::string& prompt,
                                               const std::string& history) {
  return std::make_unique<TerminalEditor>(prompt, history);
}

std::unique_ptr<LineEditor> MakePlainReader() { return std::make_unique<PlainReader>(); }

}  // namespace stagecoach::cli
