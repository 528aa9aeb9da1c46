// Reads typed values out of a checkpoint's JSON files and remembers everything that was wrong with
// them, so that a user sees all problems of a file at once.
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

// NOT_FOUND when there is no such file; INVALID_ARGUMENT when it is not one JSON object of at most
// 16 MB.
absl::StatusOr<std::shared_ptr<const boost::json::object>> ReadJsonObject(const std::string& path);

// One JSON object. A getter whose key is missing, null where a value is needed, of another type or
// out of range records a problem and returns something harmless; Finish() reports. A key that is
// absent or null has the default. Sections share the problems of the reader they come from and must
// not outlive it.
class ConfigReader {
 public:
  // `what` opens the error message: "/models/x/config.json (LlamaForCausalLM)".
  ConfigReader(std::shared_ptr<const boost::json::object> object, std::string what);

  bool Has(std::string_view key) const;  // present and not null
  bool Mentions(
      std::string_view key) const;  // present, even as null, which some keys use for "off"

  // Without a default the key is required.
  int32_t Int(std::string_view key, int64_t min, int64_t max,
              std::optional<int32_t> or_else = std::nullopt);
  double Number(std::string_view key, double min, double max,
                std::optional<double> or_else = std::nullopt);
  bool Bool(std::string_view key, bool or_else);
  std::string String(std::string_view key, std::string_view or_else);
  std::vector<std::string> Strings(std::string_view key);                          // absent: empty
  std::vector<double> Numbers(std::string_view key);                               // absent: empty
  std::vector<int32_t> IntOrInts(std::string_view key, int64_t min, int64_t max);  // absent: empty
  // Absent or no object (which is a problem): an empty one.
  ConfigReader Section(std::string_view key);

  void Problem(std::string_view key, std::string_view text);  // the file is wrong
  void Unsupported(std::string_view key,
                   std::string_view text);  // the file is right, we cannot run it
  bool ok() const;

  // INVALID_ARGUMENT listing everything if there was a problem, UNIMPLEMENTED if only unsupported
  // things.
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
