// Reads one tool call while the model writes it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace stagecoach::router {

// A subclass knows one spelling of calls. One thread at a time.
class CallReader {
 public:
  virtual ~CallReader() = default;

  // Consumes text of the call and returns its number of bytes. The rest is passed again, with more
  // text behind it.
  virtual size_t Push(std::string_view text) = 0;
  // The text ends within the call. `rest`: what Push left.
  virtual void End(std::string_view /*rest*/) {}
  virtual bool done() const = 0;
  // This is no call, or no longer one: what was not consumed is text.
  virtual bool failed() const = 0;

  bool named() const { return named_; }
  const std::string& name() const { return name_; }  // complete once named() is true
  // Arguments since the last call, pieces of JSON; empty until the name is known.
  std::string TakeArguments() { return named_ ? std::exchange(arguments_, {}) : std::string(); }

 protected:
  std::string name_;
  bool named_ = false;
  std::string arguments_;
};

// A reader that goes from state to state. State: an enum with kDone and kFailed, among others.
template <typename State>
class SteppedCallReader : public CallReader {
 public:
  size_t Push(std::string_view text) final {
    size_t at = 0;
    while (at < text.size() && !done() && !failed()) {
      const State before = state_;
      const size_t n = Step(text.substr(at));
      at += n;
      if (n == 0 && state_ == before) break;
    }
    return at;
  }
  bool done() const final { return state_ == State::kDone; }
  bool failed() const final { return state_ == State::kFailed; }

 protected:
  explicit SteppedCallReader(State first) : state_(first) {}

  // Consumes part of `text`, which is not empty, and returns the number of its bytes; 0: more text
  // is needed, or the state changed.
  virtual size_t Step(std::string_view text) = 0;

  State state_;
};

// The longest name of a tool or an argument.
inline constexpr size_t kMaxNameBytes = 256;

}  // namespace stagecoach::router
