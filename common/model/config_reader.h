// Reads typed values from a checkpoint's JSON files. Collects every problem, so that the user sees
// all problems of a file at once.
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach {

// NOT_FOUND if the file does not exist. INVALID_ARGUMENT if the file is not one JSON value of at
// most 16 MB.
absl::StatusOr<boost::json::value> ReadJson(const std::string& path);
// The same, and INVALID_ARGUMENT if the value is not an object.
absl::StatusOr<std::shared_ptr<const boost::json::object>> ReadJsonObject(const std::string& path);

// Reads one JSON object. A getter records a problem and returns a harmless value if a required key
// is missing or null, or if a value has the wrong type or is out of range. Finish() reports the
// problems. A key that is absent or null has its default. A section shares its parent reader's
// problem list; the parent must outlive it.
class ConfigReader {
 public:
  // `what` begins the error message: "/models/x/config.json (LlamaForCausalLM)".
  ConfigReader(std::shared_ptr<const boost::json::object> object, std::string what);

  bool Has(std::string_view key) const;  // present and not null
  bool Mentions(
      std::string_view key) const;  // present; may be null, which means "off" for some keys

  // A key without a default is required.
  int32_t Int(std::string_view key, int64_t min, int64_t max,
              std::optional<int32_t> or_else = std::nullopt);
  double Number(std::string_view key, double min, double max,
                std::optional<double> or_else = std::nullopt);
  bool Bool(std::string_view key, bool or_else);
  // The same, where some files have a number: all but 0 are true.
  bool BoolOrNumber(std::string_view key, bool or_else);
  std::string String(std::string_view key, std::string_view or_else);
  std::vector<std::string> Strings(std::string_view key);                          // absent: empty
  std::vector<double> Numbers(std::string_view key);                               // absent: empty
  std::vector<int32_t> IntOrInts(std::string_view key, int64_t min, int64_t max);  // absent: empty
  // Returns an empty section if the key is absent or not an object; the latter is a problem.
  ConfigReader Section(std::string_view key);

  void Problem(std::string_view key, std::string_view text);  // the file is wrong
  void Unsupported(std::string_view key,
                   std::string_view text);  // the file is right, but we cannot run it
  bool ok() const;

  // Returns INVALID_ARGUMENT with all entries if there was a problem, UNIMPLEMENTED if there were
  // only unsupported features.
  absl::Status Finish() const;

 private:
  struct Notes {
    std::string what;
    std::vector<std::string> problems;
    std::vector<std::string> unsupported;
  };
  ConfigReader(std::shared_ptr<const boost::json::object> object, std::string prefix,
               std::shared_ptr<Notes> notes);

  const boost::json::value* Find(std::string_view key) const;
  std::optional<int32_t> AsInt(std::string_view key, const boost::json::value& value, int64_t min,
                               int64_t max);
  void WrongType(std::string_view key, const boost::json::value& value, std::string_view wanted);

  std::shared_ptr<const boost::json::object> object_;
  std::string prefix_;  // "rope_scaling." in a section
  std::shared_ptr<Notes> notes_;
};

}  // namespace stagecoach
