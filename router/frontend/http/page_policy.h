// Restricts what a browser may do for the web page: run the page's own scripts and talk to this
// server, nothing else.
#pragma once

#include <string_view>

#include "router/frontend/http/http_message.h"

namespace stagecoach::router::http {

// A Content-Security-Policy that lists every <script> and <style> of the page by its hash and keeps
// scripts from parsing text as HTML, and fields that prevent framing and content sniffing. In
// `html`, these tags must have no attributes.
HeaderFields PageFields(std::string_view html);

}  // namespace stagecoach::router::http
