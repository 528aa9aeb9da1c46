#include "cli/bench_flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>

#include "common/flags/flag_table.h"
#include "common/flags/serve_flags.h"

namespace stagecoach::cli {
namespace {

TEST_CASE("bench accepts the flags of the pipeline and not those of the front end") {
  using Mode = BenchOptions::Mode;
  for (const Mode mode : {Mode::kLatency, Mode::kThroughput, Mode::kServe}) {
    BenchOptions options(mode);
    CLI::App bench;
    AddBenchFlags(bench, options);
    CHECK(bench.get_option_no_throw("--stall-limit") != nullptr);
    CHECK(bench.get_option_no_throw("--http-idle-timeout") == nullptr);
    CHECK(bench.get_option_no_throw("--http-max-client-connections") == nullptr);

    FrontEndFlags flags;
    CLI::App front_end;
    FlagTable table(front_end);
    DeclareFrontEndFlags(table, flags);
    for (const CLI::Option* option : front_end.get_options()) {
      const std::string name = "--" + option->get_lnames().front();
      INFO(name);
      CHECK((name == "--help" || bench.get_option_no_throw(name) == nullptr));
    }
  }
}

}  // namespace
}  // namespace stagecoach::cli
