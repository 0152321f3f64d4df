#include "tests/fuzz/try_config.h"

#include <algorithm>
#include <fstream>

#include "runtime/check.h"
#include "train/config/config.h"

namespace flatshard::test {
namespace {

void require(bool holds, const std::string& promise) {
  if (!holds) throw std::logic_error(promise);
}

void write(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  require(out.good(), "cannot write " + file);
}

// Whether the work succeeds; if not, it must have thrown an Error of one line.
template <class Work>
bool accepted(const char* what, Work&& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    const auto* const several = dynamic_cast<const Errors*>(&error);
    for (const std::string& text : several ? several->each : std::vector<std::string>{error.what()}) {
      const bool one_line = !text.empty() && std::none_of(text.begin(), text.end(), [](unsigned char c) {
        return c < 0x20 || c == 0x7f;
      });
      require(one_line, str(what, ": the message is not one printable line: ", text));
    }
  } catch (const std::logic_error&) {
    throw;
  } catch (const std::exception& error) {
    require(false, str(what, ": not an Error: ", error.what()));
  }
  return false;
}

void require_same_again(const std::string& printed, const std::string& expected, const std::string& file) {
  write(file, printed);
  std::string again;
  try {
    LoadedConfig loaded = load_config(file, {});
    again = to_toml(loaded.config);
  } catch (const std::exception& error) {
    require(false, str("a printed config does not load: ", error.what(), "\n", printed));
  }
  require(again == expected,
          str("a printed config loads as another one:\n", expected, "\n-- is now\n", again));
}

}  // namespace

void try_config(const ConfigInput& input, const std::string& file, Tally& tally) {
  ++tally.inputs;
  write(file, input.toml);
  LoadedConfig loaded;
  if (!accepted("load_config", [&] { loaded = load_config(file, input.overrides); })) return;
  ++tally.loaded;
  std::string printed;
  require(accepted("to_toml", [&] { printed = to_toml(loaded.config); }),
          "a config that loads does not print");
  require_same_again(printed, printed, file);
  require_same_again(to_toml(loaded.config, &loaded.origin), printed, file);
  tally.resolved += accepted("resolved", [&] { resolved(loaded.config.model); });
}

}  // namespace flatshard::test
