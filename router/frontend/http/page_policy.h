// What a browser may do for the web page: run its own script and talk to this server, nothing else.
#pragma once

#include <string_view>

#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// A Content-Security-Policy that names the page's <script> and <style> by their hashes, and fields
// that keep it from being framed or guessed at. `html` has at most one of each, without attributes.
HeaderFields PageFields(std::string_view html);

}  // namespace stagecoach::router::http
