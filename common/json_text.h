// JSON for people as well as for programs.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

namespace stagecoach {

// `value` as compact JSON with numbers as people write them: 2.5 and 2.0, where
// boost::json::serialize gives 2.5E0 and 2E0. Any reader gets the same values from either. Numbers
// that JSON does not have are null.
std::string JsonText(const boost::json::value& value);
void AppendJsonText(const boost::json::value& value, std::string& to);
void AppendJsonText(const boost::json::array& array, std::string& to);
void AppendJsonText(const boost::json::object& object, std::string& to);

}  // namespace stagecoach
