// What a JSON document says, while it is being written: for people who read an answer and not the
// names of the fields around it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/text/json_path.h"
#include "router/text/json_string.h"

namespace stagecoach::router {

struct JsonEvent {
  std::string path;   // of a scalar value: a JSON pointer, "/challenges/0/title"
  std::string delta;  // more of its text: decoded, of strings; as written, of all others
};

// Text in, events of the selected scalar values out. The deltas of a path, one after the other, are
// its value; they do not depend on where the text is cut, which may be anywhere, and are whole
// UTF-8 characters. An empty string has one event with an empty delta; objects and arrays have none
// of their own. One thread at a time.
//
// No library reads strings of a document that is not whole, by path: hence this one.
class JsonEventParser {
 public:
  enum class Source : uint8_t {
    kConstrained,  // the text is a document, as a grammar has it
    kPrompted,     // the document may stand in a code fence, between sentences
  };

  // `paths` outlives the parser.
  JsonEventParser(const JsonPaths* paths, Source source);

  // Appends to `events`, one for each value that the text goes on with. Of a prompted text the
  // first document that has something selected is read: an object, or an array that begins the text
  // or a fence. Nothing comes of what stands before and after it, and nothing more once it is not
  // JSON any longer.
  void Push(std::string_view text, std::vector<JsonEvent>* events);

  // A document was read to its end.
  bool complete() const { return state_ == State::kComplete; }

 private:
  enum class State : uint8_t {
    kSearch,     // a document may begin
    kCandidate,  // behind what may be its first bracket
    kValue,      // a value, or in an array perhaps its end
    kKey,        // a member's name, or the object's end
    kKeyString,  // inside a name
    kColon,
    kString,  // inside a value
    kNumber,
    kLiteral,
    kAfterValue,  // a comma or the end
    kComplete,
    kBroken,
  };
  struct Level {
    bool is_array;
    uint32_t index;    // of the item being read
    size_t path_size;  // of the container's own path
    JsonPaths::Place place;
  };

  // Each takes the byte `c`, or more of `text` where it says so.
  void Search(char c);
  void Candidate(char c);
  void BeginValue(char c);
  void BeginKey(char c);
  void AfterValue(char c);
  size_t Number(std::string_view text);  // returns how much was taken
  void Literal(char c);

  void Open(bool is_array);
  void Close(bool is_array);
  // False: the path would be too long for every event to carry it.
  bool Enter(std::string_view segment);  // a member or item of the innermost container
  void EndValue();
  void Break();
  void Emit(std::string_view delta);

  const JsonPaths& paths_;
  const Source source_;
  State state_;
  std::vector<Level> levels_;
  std::string path_;        // of the value being read
  JsonPaths::Place place_;  // of the value being read
  JsonStringDecoder string_;
  std::string key_;
  std::string_view literal_;  // "true" and the like
  size_t n_literal_ = 0;      // bytes of it that came
  char candidate_ = 0;        // '{' or '['
  bool at_beginning_ = true;  // search: nothing but blanks since the text's or a fence's beginning
  std::string line_;          // search: of the current line, enough to tell a fence
  bool read_again_ = false;   // the byte that was no JSON may begin a document
  bool has_event_ = false;    // the value being read has one
  bool had_event_ = false;    // the document has one
  bool continues_ = false;    // the last event is this value's
  std::vector<JsonEvent>* events_ = nullptr;
};

}  // namespace stagecoach::router
