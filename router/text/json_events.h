// Extracts values from a JSON document while it is generated, for people who read an answer without
// the field names around it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/text/json_path.h"
#include "router/text/json_string.h"

namespace stagecoach::router {

struct JsonEvent {
  std::string path;   // JSON pointer of a scalar value: "/challenges/0/title"
  std::string delta;  // next piece of its text: decoded for strings, as written for other values
};

// Takes text, returns events of the selected scalar values. The deltas of a path, concatenated, are
// its value. They do not depend on where the input is cut, and are whole UTF-8 characters. An empty
// string has one event with an empty delta; objects and arrays have no events. One thread at a
// time.
//
// Written here because no library reads the strings of an incomplete document by path.
class JsonEventParser {
 public:
  enum class Source : uint8_t {
    kConstrained,  // the text is a document, because a grammar constrains it
    kPrompted,     // the document may stand in a code fence or between sentences
  };

  // `paths` outlives the parser.
  JsonEventParser(const JsonPaths* paths, Source source);

  // Appends one event to `events` for each value that `text` continues. In a prompted text, reads
  // the first document with a selected value: an object, or an array at the beginning of the text
  // or of a code fence. Ignores the text before and after it. Returns no more events once the
  // document is not valid JSON.
  void Push(std::string_view text, std::vector<JsonEvent>* events);

  // A document was read to its end.
  bool complete() const { return state_ == State::kComplete; }

 private:
  enum class State : uint8_t {
    kSearch,     // looks for the beginning of a document
    kCandidate,  // after a possible first bracket
    kValue,      // before a value or, in an array, its end
    kKey,        // before a member's name or the object's end
    kKeyString,  // inside a name
    kColon,
    kString,  // inside a string value
    kNumber,
    kLiteral,
    kAfterValue,  // before a comma or the end
    kComplete,
    kBroken,
  };
  struct Level {
    bool is_array;
    uint32_t index;    // index of the item being read
    size_t path_size;  // length of the container's own path
    JsonPaths::Place place;
  };

  // Each consumes the byte `c`, or part of `text`.
  void Search(char c);
  void Candidate(char c);
  void BeginValue(char c);
  void BeginKey(char c);
  void AfterValue(char c);
  size_t Number(std::string_view text);  // returns the number of consumed bytes
  void Literal(char c);

  void Open(bool is_array);
  void Close(bool is_array);
  // Enters a member or item of the innermost container. False: its path is too long to repeat in
  // every event.
  bool Enter(std::string_view segment);
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
  std::string_view literal_;  // "true", "false" or "null"
  size_t n_literal_ = 0;      // bytes of it that have come
  char candidate_ = 0;        // '{' or '['
  bool at_beginning_ = true;  // search: only blanks since the beginning of the text or of a fence
  std::string line_;          // search: start of the current line, enough to detect a fence
  bool read_again_ = false;   // the byte that broke the JSON may begin a document
  bool has_event_ = false;    // the value being read has an event
  bool had_event_ = false;    // the document has an event
  bool continues_ = false;    // the last event belongs to this value
  std::vector<JsonEvent>* events_ = nullptr;
};

}  // namespace stagecoach::router
