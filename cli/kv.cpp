#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/kv/kv_clear.h"
#include "cli/kv/kv_groups.h"
#include "cli/kv/kv_report.h"
#include "cli/kv/kv_verify.h"
#include "common/json_text.h"
#include "common/status.h"
#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::cli {
namespace {

using worker::KvStoreAdmin;

struct KvFlags {
  std::string url;
  bool json = false;
  bool delete_damaged = false;
  bool yes = false;
  std::optional<uint64_t> older_than_s;
};

// Shows how far a long command is, if standard error is a terminal.
class KvProgress {
 public:
  ~KvProgress() {
    if (on_terminal_) fmt::print(stderr, "\r\033[K");
  }
  void Show(uint64_t n_values) const {
    if (on_terminal_) fmt::print(stderr, "\r{} ...", kv::CountOf(n_values, "value"));
  }

 private:
  const bool on_terminal_ = isatty(STDERR_FILENO) == 1;
};

absl::StatusOr<kv::Groups> ReadGroups(KvStoreAdmin& store) {
  kv::Groups groups;
  uint64_t n_values = 0;
  const KvProgress progress;
  SC_RETURN_IF_ERROR(store.Scan([&](std::span<const worker::StoredKv> values) {
    groups.Add(values);
    progress.Show(n_values += values.size());
    return absl::OkStatus();
  }));
  return groups;
}

absl::StatusOr<int> List(KvStoreAdmin& store, const KvFlags& flags) {
  SC_ASSIGN_OR_RETURN(const kv::Groups groups, ReadGroups(store));
  if (flags.json) {
    fmt::print("{}\n", JsonText(kv::ListJson(store, groups)));
  } else {
    fmt::print("{}", kv::ListText(store, groups));
  }
  return kExitOk;
}

absl::StatusOr<int> Size(KvStoreAdmin& store, const KvFlags& flags) {
  SC_ASSIGN_OR_RETURN(const kv::Total total, kv::CountOld(store, std::nullopt));
  if (flags.json) {
    fmt::print("{}\n", JsonText(kv::SizeJson(store, total)));
  } else {
    fmt::print("{}: {}\n", store.name(), kv::TotalText(total));
  }
  return kExitOk;
}

absl::StatusOr<kv::Verified> ReadAll(KvStoreAdmin& store, bool delete_damaged) {
  const KvProgress progress;
  return kv::Verify(store, delete_damaged, [&](uint64_t n_values) { progress.Show(n_values); });
}

absl::StatusOr<int> Verify(KvStoreAdmin& store, const KvFlags& flags) {
  SC_ASSIGN_OR_RETURN(const kv::Verified verified, ReadAll(store, flags.delete_damaged));
  if (flags.json) {
    fmt::print("{}\n", JsonText(kv::VerifyJson(store, verified)));
  } else {
    fmt::print("{}", kv::VerifyText(store, verified));
  }
  return verified.n_damaged == 0 || flags.delete_damaged ? kExitOk : kExitError;
}

// Asks on the terminal.
bool Confirms(const KvStoreAdmin& store, const kv::Total& total) {
  fmt::print(stderr, "Delete {} from {}? [y/N] ", kv::TotalText(total), store.name());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

absl::StatusOr<int> Clear(KvStoreAdmin& store, const KvFlags& flags) {
  std::optional<std::chrono::seconds> age;
  if (flags.older_than_s) age = std::chrono::seconds(*flags.older_than_s);
  if (!flags.yes) {
    if (isatty(STDIN_FILENO) != 1) {
      return absl::FailedPreconditionError("without a terminal, say --yes to delete");
    }
    SC_ASSIGN_OR_RETURN(const kv::Total total, kv::CountOld(store, age));
    if (total.n_values > 0 && !Confirms(store, total)) {
      fmt::print(stderr, "nothing is deleted\n");
      return kExitError;
    }
  }
  SC_ASSIGN_OR_RETURN(const kv::Total deleted, kv::DeleteOld(store, age));
  const std::string text =
      deleted.n_values > 0 ? "deleted " + kv::TotalText(deleted) : "nothing to delete";
  fmt::print("{}: {}\n", store.name(), text);
  return kExitOk;
}

using Action = absl::StatusOr<int> (*)(KvStoreAdmin& store, const KvFlags& flags);

absl::StatusOr<int> OpenAndRun(const KvFlags& flags, Action action) {
  SC_ASSIGN_OR_RETURN(const std::unique_ptr<KvStoreAdmin> store,
                      worker::OpenKvStoreAdmin(flags.url));
  return action(*store, flags);
}

int Run(const KvFlags& flags, Action action) {
  const absl::StatusOr<int> code = OpenAndRun(flags, action);
  if (code.ok()) return *code;
  fmt::print(stderr, "error: {}\n", std::string(code.status().message()));
  return absl::IsInvalidArgument(code.status()) ? kExitUsage : kExitError;
}

}  // namespace

void AddKv(CLI::App& app, Command& command) {
  auto flags = std::make_shared<KvFlags>();
  CLI::App* kv = app.add_subcommand("kv",
                                    "Lists, verifies or clears a store of KV blocks (serve "
                                    "--kv-store). Servers may use the store meanwhile");
  kv->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Action action) {
    CLI::App* const one = kv->add_subcommand(name, help);
    one->add_option("url", flags->url,
                    "URL of the store, as for --kv-store: redis://..., rediss://... or dir:PATH")
        ->type_name("URL")
        ->envname("STAGECOACH_KV_STORE")
        ->required();
    one->callback(
        [flags, action, &command] { command = [flags, action] { return Run(*flags, action); }; });
    return one;
  };
  const auto add_json = [&](CLI::App* one) {
    one->add_flag("--json", flags->json, "Print one JSON object");
  };
  add_json(
      add("list",
          "Prints the number, layers, size and age of the blocks. Each line is for one size of "
          "values. A value does not name its model, but all values of a model have the same size",
          List));
  add_json(add("size", "Prints the number and total size of all values", Size));
  CLI::App* const verify = add("verify",
                               "Reads and checks every value. Exits with 1 if damaged values "
                               "remain. Servers never use damaged values",
                               Verify);
  verify->add_flag("--delete", flags->delete_damaged, "Delete damaged values");
  add_json(verify);
  CLI::App* const clear = add(
      "clear", "Deletes all values, or only old ones. Does not touch other data in the same place",
      Clear);
  clear
      ->add_option("--older-than", flags->older_than_s,
                   "Delete only old values. In a Redis, these were last used before this time; in "
                   "a folder, they were written before it: 90s, 30m, 12h, 7d")
      ->type_name("AGE")
      ->transform(
          CLI::AsNumberWithUnit(
              std::map<std::string, uint64_t>{{"s", 1}, {"m", 60}, {"h", 3'600}, {"d", 86'400}},
              CLI::AsNumberWithUnit::UNIT_REQUIRED, "AGE")
              .description(""));
  clear->add_flag("-y,--yes", flags->yes, "Delete without asking");
}

}  // namespace stagecoach::cli
