#include "tests/fuzz/odd_command.h"

#include "tests/fuzz/mutate.h"
#include "train/config/fields.h"

namespace flatshard::test {
namespace {

using Words = std::vector<std::string>;

// Sizes that are tiny, or exceed memory or a bound; medium ones would take long.
std::string odd_size(Dice& dice) {
  static const Words all{"0",
                         "1",
                         "2",
                         "3",
                         "7",
                         "16",
                         "64",
                         "-1",
                         "4096",
                         "100000",
                         "1048576",
                         "262144",
                         "4294967296",
                         "2147483647",
                         "1000000000",
                         "2147483648",
                         "4194304",
                         "65536",
                         "9223372036854775807",
                         "1000000000000",
                         "1_000_000",
                         "0x7fffffff",
                         "1e9",
                         "1.5"};
  return dice.of(all);
}

std::string size_override(Dice& dice) {
  static const Words keys{"model.layers",
                          "model.hidden",
                          "model.heads",
                          "model.kv_heads",
                          "model.head_dim",
                          "model.ffn",
                          "model.vocab",
                          "model.max_positions",
                          "model.window",
                          "data.seq_len",
                          "train.total_batch_size",
                          "train.batch_size_per_device",
                          "train.lane_size",
                          "train.eval_batch_size_per_device",
                          "train.eval_every",
                          "parallel.group_size",
                          "parallel.depth",
                          "run.threads",
                          "run.hash_every",
                          "log.every",
                          "schedule.warmup_steps",
                          "optimizer.base_batch_size"};
  return "--" + dice.of(keys) + "=" + odd_size(dice);
}

// A key with a valid value, so that runs differ rather than fail.
std::string right_override(Dice& dice) {
  Config config;
  const std::vector<Field> all = fields(config);
  for (;;) {
    const Field& field = dice.of(all);
    if (!field.names().empty()) return "--" + field.key + "=" + dice.of(field.names());
    if (std::holds_alternative<bool*>(field.member) ||
        std::holds_alternative<std::optional<bool>*>(field.member))
      return "--" + field.key + (dice.one_in(2) ? "=true" : "=false");
  }
}

std::string data_override(Dice& dice) {
  static const Words files{"corpus.tok",  "corpus.tok", "cut.tok", "outside.tok", "empty.tok",  "config.toml",
                           "missing.tok", ".",          "",        "/dev/zero",   "/dev/stdin", "pipe"};
  return (dice.one_in(3) ? "--data.eval=" : "--data.train=") + dice.of(files);
}

// Arguments that are not overrides.
std::string odd_word(Dice& dice) {
  static const Words all{"--plan",
                         "--print-config",
                         "--help",
                         "-h",
                         "--plan=x",
                         "--plan=false",
                         "--help=1",
                         "--version",
                         "-x",
                         "-p",
                         "--",
                         "-",
                         "",
                         " ",
                         "--=",
                         "--.=",
                         "--a.b.c=1",
                         "--.",
                         "config.toml",
                         "second.toml",
                         "--unknown",
                         "--unknown=1",
                         "--optimizer.lr",
                         "--optimizer.lr=",
                         "--optimizer..lr=1",
                         "--CONFIG",
                         "--CONFIG=x",
                         "++plan",
                         "/plan",
                         "@file",
                         "--model=1",
                         "--model={}",
                         "--model.rope_scaling={}",
                         "%n%s",
                         "\xff\xfe",
                         "--a\nb.c=1",
                         "\x1b[2J",
                         "train",
                         "1",
                         "[a,b]"};
  return dice.of(all);
}

std::string odd_argument(Dice& dice) {
  switch (dice.below(8)) {
    case 0:
      return odd_word(dice);
    case 1:
      return "--" + odd_override(dice);
    case 2:
      return data_override(dice);
    case 3:
      return size_override(dice);
    default:
      return right_override(dice);
  }
}

std::string odd_config_path(Dice& dice) {
  static const Words all{"missing.toml",  "", ".", "/dev/zero", "/dev/null", "corpus.tok",
                         "config.toml/x", "-"};
  return dice.of(all);
}

// Folders that can be created, and paths where that is impossible.
std::string odd_run_dir(Dice& dice) {
  static const Words all{"run/a/b",       "run/../run",          ".",      "", "corpus.tok", "corpus.tok/run",
                         "/proc/nothing", std::string(300, 'x'), "\x1b[2J"};
  return dice.one_in(4) ? dice.of(all) : "run";
}

}  // namespace

OddCommand odd_command(uint64_t seed, int64_t number, const std::string& toml) {
  Dice dice(seed, "command fuzz", number);
  OddCommand command{.toml = toml, .arguments = {}, .run_dir = odd_run_dir(dice)};
  if (dice.one_in(6)) change_toml(command.toml, dice);
  Words& words = command.arguments;
  for (size_t i = dice.below(4); i > 0; --i) words.push_back(odd_argument(dice));
  if (dice.one_in(4)) words.push_back("--plan");
  if (dice.one_in(12)) words.push_back("--print-config");
  if (!dice.one_in(20)) {
    const size_t at = dice.below(words.size() + 1);
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(at),
                 dice.one_in(12) ? odd_config_path(dice) : "config.toml");
  }
  // The last override of a key applies, so these bound the work.
  words.push_back("--run.dir=" + command.run_dir);
  words.push_back("--train.epochs=0");
  words.push_back(dice.one_in(8)   ? "--train.steps=0"
                  : dice.one_in(2) ? "--train.steps=1"
                                   : "--train.steps=2");
  words.push_back(dice.one_in(32) ? "--run.threads=2" : "--run.threads=1");  // one is fast on a busy machine
  return command;
}

}  // namespace flatshard::test
