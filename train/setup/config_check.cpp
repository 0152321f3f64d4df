#include "train/setup/config_check.h"

#include <algorithm>
#include <filesystem>

#include "runtime/hub_id.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The keys that a message mentions, in its order.
std::vector<std::string> keys_in(const std::string& message, const LoadedConfig& loaded) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  std::vector<std::string> keys;
  for (size_t begin = 0; (begin = message.find_first_of(kLetters, begin)) != message.npos;) {
    const size_t end = std::min(message.find_first_not_of(kLetters, begin), message.size());
    std::string key = message.substr(begin, end - begin);
    while (key.ends_with('.')) key.pop_back();
    if (loaded.origin.contains(key) && std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
    begin = end;
  }
  return keys;
}

// The sources of keys that have no default, such as "tiny.toml:13, --model.heads".
std::string places_of(const std::vector<std::string>& keys, const LoadedConfig& loaded) {
  std::string places;
  for (const std::string& key : keys)
    if (const std::string& origin = loaded.origin.at(key); origin != "default")
      places += (places.empty() ? "" : ", ") + (origin == "command line" ? "--" + key : origin);
  return places.empty() ? loaded.file : places;
}

// `advice` is a clause about a path that does not exist.
void check_file(const char* key, const std::string& path, Problems& problems,
                const std::string& advice = "") {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return;
  if (error)
    return problems.add(str(key, " is ", quoted(path), ", which cannot be opened: ", error.message()));
  const std::string start =
      fs::path(path).is_absolute() ? "" : "; relative paths start in " + fs::current_path(error).string();
  problems.add(str(key, " is ", quoted(path), ", which does not exist", start, ": correct the path",
                   start.empty() ? "" : ", or start train elsewhere", advice));
}

void check_inputs(const Config& c, const HostPlace& place, Problems& problems) {
  problems.check(
      !named_files(c.data.train).empty(),
      "data.train is \"\", must name a file to train on: tokens made by prepare, or a .jsonl or .txt file");
  problems.attempt([&] { check_length(c.train); });
  if (place.rank != 0) return;  // other ranks read the files that the first one of a host has prepared
  for (const NamedFile& file : named_files(c.data.train)) check_file("data.train", file.path, problems);
  for (const NamedFile& file : named_files(c.data.eval)) check_file("data.eval", file.path, problems);
  check_file("data.tokenizer", c.data.tokenizer, problems, download_advice(c.data.tokenizer));
  check_file("log.samples", c.log.samples, problems);
}

}  // namespace

void check_config(const LoadedConfig& loaded, int ranks, HostPlace place, Purpose purpose,
                  Problems& problems) {
  Problems found;
  found.attempt([&] { set_up(loaded.config, ranks, place, purpose); });
  check_file("model.init_from", loaded.config.init_from, found, download_advice(loaded.config.init_from));
  if (purpose == Purpose::run) check_inputs(loaded.config, place, found);
  for (const std::string& text : found.texts()) {
    const std::vector<std::string> keys = keys_in(text, loaded);
    const bool follows = std::any_of(keys.begin(), keys.end(),
                                     [&](const std::string& key) { return loaded.refused.contains(key); });
    if (!follows) problems.add(str(places_of(keys, loaded), ": ", text));
  }
}

}  // namespace flatshard
