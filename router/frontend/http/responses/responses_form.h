// Properties of a request of OpenAI's /v1/responses that decide the form of its answer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace stagecoach::router::http {

class ResponseTurn;

// The name by which the model knows a function of a namespace.
inline std::string NameInNamespace(const std::string& space, const std::string& name) {
  return space + "__" + name;
}

struct ResponsesForm {
  // Fields of the request that the answer repeats, unless they are large: members of a JSON object,
  // without its braces.
  std::string echo;
  bool store = true;                 // keep the response for a later previous_response_id
  std::string previous_response_id;  // empty: none, or taken already
  bool has_instructions = false;     // they are the first message
  // The namespace of each function that has one, by the name that the model knows.
  std::map<std::string, std::string, std::less<>> namespaces;
  // Keeps the response when it is complete; null: there is nothing to keep.
  std::shared_ptr<ResponseTurn> turn;
};

}  // namespace stagecoach::router::http
