#include "cli/kv/kv_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <utility>
#include <vector>

#include "common/size.h"

namespace stagecoach::cli::kv {
namespace {

using worker::KvStoreAdmin;
constexpr size_t kColumns = 6;
using Row = std::array<std::string, kColumns>;

// Every column is right-aligned but the last one.
std::string Table(const std::vector<Row>& rows) {
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < kColumns; ++i) text += fmt::format("{:>{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

std::string LayersText(const Group& group) {
  const uint32_t first = *group.layers.begin(), last = *group.layers.rbegin();
  if (group.layers.size() == 1) return fmt::format("{}", first);
  const std::string range = fmt::format("{} to {}", first, last);
  if (group.layers.size() == last - first + 1) return range;
  return fmt::format("{} of {}", group.layers.size(), range);
}

std::string AgesText(const Group& group) {
  if (!group.newest || !group.oldest) return "unknown";
  const std::string newest = AgeText(*group.newest), oldest = AgeText(*group.oldest);
  return newest == oldest ? newest + " ago" : newest + " to " + oldest + " ago";
}

boost::json::value SecondsJson(const std::optional<std::chrono::seconds>& age) {
  return age ? boost::json::value(age->count()) : nullptr;
}

std::string KeyText(const worker::KvKey& key) {
  return fmt::format("block {}, layer {}", worker::HexBlock(key), key.layer);
}

}  // namespace

std::string Grouped(uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (auto at = static_cast<ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

std::string CountOf(uint64_t n, const std::string& what) {
  return fmt::format("{} {}{}", Grouped(n), what, n == 1 ? "" : "s");
}

std::string AgeText(std::chrono::seconds age) {
  constexpr int64_t kDay = 86'400;
  const int64_t seconds = age.count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3'600) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * kDay) return fmt::format("{} h", seconds / 3'600);
  return fmt::format("{} d", seconds / kDay);
}

std::string TotalText(const Total& total) {
  return fmt::format("{}, {}", CountOf(total.n_values, "value"), FormatBytes(total.bytes));
}

std::string ListText(const KvStoreAdmin& store, const Groups& groups) {
  const Total total = groups.total();
  if (total.n_values == 0) return fmt::format("{}: no values\n", store.name());
  const bool is_used = store.age() == KvStoreAdmin::Age::kSinceUsed;
  std::vector<Row> rows = {
      {"value size", "layers", "blocks", "whole", "size", is_used ? "last used" : "written"}};
  for (const Group& group : groups.Get()) {
    rows.push_back({FormatBytes(group.value_bytes), LayersText(group), Grouped(group.n_blocks),
                    Grouped(group.n_whole), FormatBytes(group.total.bytes), AgesText(group)});
  }
  return fmt::format("{}: {}, {}\n\n{}", store.name(), CountOf(groups.n_blocks(), "block"),
                     TotalText(total), Table(rows));
}

std::string VerifyText(const KvStoreAdmin& store, const Verified& verified) {
  std::string text =
      fmt::format("{}: {} read\n", store.name(), CountOf(verified.n_read(), "value"));
  const auto add = [&](const char* what, uint64_t n, const std::string& remark) {
    text +=
        fmt::format("  {:<8} {:>12}{}{}\n", what, Grouped(n), remark.empty() ? "" : "  ", remark);
  };
  add("good", verified.n_good, "");
  add("damaged", verified.n_damaged,
      verified.n_deleted > 0 ? Grouped(verified.n_deleted) + " deleted" : "");
  add("foreign", verified.n_foreign,
      verified.n_foreign > 0 ? "of another version of stagecoach" : "");
  for (const Damage& damage : verified.examples) {
    text += fmt::format("{}: {}\n", KeyText(damage.key), damage.what);
  }
  if (verified.n_damaged > verified.examples.size()) {
    text += fmt::format("and {} more\n", Grouped(verified.n_damaged - verified.examples.size()));
  }
  return text;
}

boost::json::object SizeJson(const KvStoreAdmin& store, const Total& total) {
  return {{"store", store.name()}, {"values", total.n_values}, {"bytes", total.bytes}};
}

boost::json::object ListJson(const KvStoreAdmin& store, const Groups& groups) {
  boost::json::object json = SizeJson(store, groups.total());
  json["blocks"] = groups.n_blocks();
  json["age_since"] = store.age() == KvStoreAdmin::Age::kSinceUsed ? "used" : "written";
  boost::json::array& list = json["groups"].emplace_array();
  for (const Group& group : groups.Get()) {
    list.push_back({{"value_bytes", group.value_bytes},
                    {"layers", group.layers.size()},
                    {"first_layer", *group.layers.begin()},
                    {"last_layer", *group.layers.rbegin()},
                    {"blocks", group.n_blocks},
                    {"whole_blocks", group.n_whole},
                    {"values", group.total.n_values},
                    {"bytes", group.total.bytes},
                    {"newest_s", SecondsJson(group.newest)},
                    {"oldest_s", SecondsJson(group.oldest)}});
  }
  return json;
}

boost::json::object VerifyJson(const KvStoreAdmin& store, const Verified& verified) {
  boost::json::object json{{"store", store.name()},
                           {"good", verified.n_good},
                           {"damaged", verified.n_damaged},
                           {"foreign", verified.n_foreign},
                           {"deleted", verified.n_deleted}};
  boost::json::array& examples = json["examples"].emplace_array();
  for (const Damage& damage : verified.examples) {
    examples.push_back({{"block", worker::HexBlock(damage.key)},
                        {"layer", damage.key.layer},
                        {"problem", damage.what}});
  }
  return json;
}

}  // namespace stagecoach::cli::kv
