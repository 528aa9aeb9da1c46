// What a browser may do for the web page: run its own scripts and talk to this server, nothing
// else.
#pragma once

#include <string_view>

#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// A Content-Security-Policy that names every <script> and <style> of the page by its hash, and
// fields that keep it from being framed or guessed at. `html` has them without attributes.
HeaderFields PageFields(std::string_view html);

}  // namespace stagecoach::router::http
