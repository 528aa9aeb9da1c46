// JSON that is easy to read for people as well as for programs.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>

namespace stagecoach {

// Returns `value` as compact JSON. Numbers are written in the usual form: 2.5 and 2.0, where
// boost::json::serialize writes 2.5E0 and 2E0. Parsers read the same values from both forms.
// Numbers that JSON cannot express (NaN, infinities) become null.
std::string JsonText(const boost::json::value& value);
void AppendJsonText(const boost::json::value& value, std::string& to);
void AppendJsonText(const boost::json::array& array, std::string& to);
void AppendJsonText(const boost::json::object& object, std::string& to);

}  // namespace stagecoach
