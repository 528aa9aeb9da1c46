#include "router/text/tool_call_reader.h"

#include "router/text/blank.h"

namespace stagecoach::router {

size_t JsonValueEnd::Push(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        done_ = depth_ == 0;
      }
    } else if (is_scalar_) {
      if (!IsBlank(c) && c != ',' && c != ']' && c != '}') continue;
      done_ = true;
      return at;
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      done_ = --depth_ <= 0;
    } else if (!begun_ && !IsBlank(c)) {
      is_scalar_ = true;
    }
    begun_ = begun_ || !IsBlank(c);
    if (done_) return at + 1;
  }
  return text.size();
}

size_t ToolCallReader::Push(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !done() && !failed()) {
    switch (state_) {
      case State::kKeyString:
        at += string_.Push(text.substr(at), &key_);
        if (string_.closed()) state_ = State::kColon;
        break;
      case State::kName:
        at += string_.Push(text.substr(at), &name_);
        if (!string_.closed()) break;
        named_ = true;
        state_ = State::kAfterValue;
        break;
      case State::kArgumentsString:
        at += string_.Push(text.substr(at), &arguments_);
        if (string_.closed()) state_ = State::kAfterValue;
        break;
      case State::kArguments:
      case State::kSkipped:
        at += Skim(text.substr(at));
        break;
      default:
        Structure(text[at++]);
    }
  }
  return at;
}

size_t ToolCallReader::Skim(std::string_view text) {
  const size_t n = end_.Push(text);
  if (state_ == State::kArguments) arguments_ += text.substr(0, n);
  if (end_.done()) state_ = State::kAfterValue;
  return n;
}

void ToolCallReader::Structure(char c) {
  if (IsBlank(c)) return;
  const bool closes = c == '}' && (state_ == State::kKey || state_ == State::kAfterValue);
  if (closes) {
    if (--depth_ > 0) {
      state_ = State::kAfterValue;
    } else {
      state_ = State::kDone;
      if (!has_arguments_) arguments_ = "{}";
    }
  } else if (state_ == State::kOpen && c == '{') {
    depth_ = 1;
    state_ = State::kKey;
  } else if (state_ == State::kKey && c == '"') {
    key_.clear();
    string_.Reset();
    state_ = State::kKeyString;
  } else if (state_ == State::kColon && c == ':') {
    state_ = State::kValue;
  } else if (state_ == State::kValue) {
    BeginValue(c);
  } else if (state_ == State::kAfterValue && c == ',') {
    state_ = State::kKey;
  } else {
    state_ = State::kFailed;
  }
}

void ToolCallReader::BeginValue(char c) {
  if (key_ == "function" && c == '{') {
    ++depth_;
    state_ = State::kKey;
    return;
  }
  // {"function": "f"} also gives the name.
  if ((key_ == "name" || key_ == "function") && c == '"' && !named_) {
    string_.Reset();
    state_ = State::kName;
    return;
  }
  end_ = JsonValueEnd();
  if ((key_ != "arguments" && key_ != "parameters") || has_arguments_) {
    state_ = State::kSkipped;
    Skim({&c, 1});
    return;
  }
  has_arguments_ = true;
  if (c == '"') {
    string_.Reset();
    state_ = State::kArgumentsString;
  } else {
    state_ = State::kArguments;
    Skim({&c, 1});
  }
}

}  // namespace stagecoach::router
