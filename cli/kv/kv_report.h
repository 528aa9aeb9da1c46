// What `kv` prints, for people and as JSON.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "cli/kv/kv_groups.h"
#include "cli/kv/kv_verify.h"
#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::cli::kv {

// "1,234,567"
std::string Grouped(uint64_t number);
// "1 value", "1,234 values"
std::string CountOf(uint64_t n, const std::string& what);
// "12 s", "5 min", "3 h", "2 d", rounded down
std::string AgeText(std::chrono::seconds age);
// "1,234 values, 80.1 MiB"
std::string TotalText(const Total& total);

std::string ListText(const worker::KvStoreAdmin& store, const Groups& groups);
std::string VerifyText(const worker::KvStoreAdmin& store, const Verified& verified);

boost::json::object SizeJson(const worker::KvStoreAdmin& store, const Total& total);
// SizeJson's fields, and "groups".
boost::json::object ListJson(const worker::KvStoreAdmin& store, const Groups& groups);
boost::json::object VerifyJson(const worker::KvStoreAdmin& store, const Verified& verified);

}  // namespace stagecoach::cli::kv
