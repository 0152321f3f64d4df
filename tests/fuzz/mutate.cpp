#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <sstream>

#include "runtime/check.h"
#include "train/config/fields.h"

namespace flatshard::test {
namespace {

using namespace std::string_literals;
using Lines = std::vector<std::string>;

// A typical config, one that uses all syntax of TOML, and one with every key at its default.
const std::vector<std::string>& valid_configs() {
  static const std::vector<std::string> all = [] {
    Config defaults;
    return std::vector<std::string>{
        "[run]\nseed = 1\n\n[model]\nfamily = \"llama\"\nlayers = 4\nhidden = 64\nheads = 4\nvocab = 256\n\n"
        "[data]\ntrain = \"corpus.tok\"\nseq_len = 128\n\n[train]\nsteps = 100\ntotal_batch_size = 8\n\n"
        "[optimizer]\nlr = 3e-4\nbetas = [0.9, 0.95]\nno_decay = [\"norm\"]\n\n[schedule]\nkind = "
        "\"cosine\"\n"
        "warmup_ratio = 0.1\n",
        "# a comment \xc3\xa9\nrun.dir = 'a\\b'\nmodel = {family = \"qwen3\", layers = 1, hidden = 0x20, "
        "heads = 2, "
        "vocab = 1_000, rope_scaling = {kind = \"llama3\", factor = 8}}\n[optimizer]\nbetas = [\n  0.9, # "
        "first\n"
        "  0.999,\n]\nlr = 1\n[log]\n\"every\" = 5\n[data]\ntrain = \"\"\"\ntext\"\"\"\neval = \"\\u00e9 "
        "\xc3\xa9\"\n",
        to_toml(defaults),
        "",
    };
  }();
  return all;
}

// Boundary values of every type, and texts that only look like values.
const std::vector<std::string>& odd_values() {
  static const std::vector<std::string> all{"0",
                                            "1",
                                            "-1",
                                            "2",
                                            "3",
                                            "7",
                                            "64",
                                            "4294967296",
                                            "9223372036854775807",
                                            "-9223372036854775808",
                                            "9223372036854775808",
                                            "4611686018427387904",
                                            "0x7fffffffffffffff",
                                            "0b1",
                                            "0o17",
                                            "1_000",
                                            "1__0",
                                            "01",
                                            "0.0",
                                            "-0.0",
                                            "0.5",
                                            "1.0",
                                            "1e-8",
                                            "1e308",
                                            "1e309",
                                            "-1e308",
                                            "4.9e-324",
                                            "2.2e-308",
                                            "1e-400",
                                            "0.1",
                                            "0.30000000000000004",
                                            "1e22",
                                            "123456789012345678.0",
                                            "nan",
                                            "-nan",
                                            "inf",
                                            "-inf",
                                            "true",
                                            "false",
                                            "True",
                                            "\"\"",
                                            "''",
                                            "\"a\"",
                                            "\"*\"",
                                            "\"auto\"",
                                            "\"none\"",
                                            "\"gpt2\"",
                                            "\"qwen2\"",
                                            "\"linear\"",
                                            "\"fp16\"",
                                            "\"wsd\"",
                                            "\"a\\nb\"",
                                            "\"\\u0000\"",
                                            "\"\\u007f\\u001b[2J\"",
                                            "\"\\U0010ffff\\ufffe\"",
                                            "\"\\ud800\"",
                                            "\"\\\"\\\\\"",
                                            "'''a\nb'''",
                                            "\"\"\"a\\\n  b\"\"\"",
                                            "'\t'",
                                            "[]",
                                            "[[]]",
                                            "[\"a\", \"b\\r\\n\"]",
                                            "[\"a\", 1]",
                                            "[0, 1]",
                                            "[0.9, 0.95]",
                                            "[0.9, nan]",
                                            "[1, 2, 3]",
                                            "[\n1,\n]",
                                            "{}",
                                            "{a = 1}",
                                            "{kind = \"linear\"}",
                                            "{factor = 2.0}",
                                            "1979-05-27",
                                            "07:32:00",
                                            "1979-05-27T07:32:00Z",
                                            "bare",
                                            "two words",
                                            "a,b",
                                            "#",
                                            "",
                                            "1 # comment",
                                            "1\n[model]",
                                            "1\nvalue = 2",
                                            "\"unfinished",
                                            "[1, ",
                                            "\xc3\xa9",
                                            "\xc3\xa9.tok",
                                            "a\xe1\x9a\x80",
                                            "\xff\xfe",
                                            "1e",
                                            "--1"};
  return all;
}

const std::vector<std::string>& odd_bytes() {
  static const std::vector<std::string> all{"\0"s,
                                            "\xef\xbb\xbf"s,
                                            "\xff"s,
                                            "\xc0\x80"s,
                                            "\xed\xa0\x80"s,
                                            "\xe2\x80\xa8"s,
                                            "\xf4\x90\x80\x80"s,
                                            "\xc3"s,
                                            "\xf0\x9f\x98\x80"s,
                                            "\r"s,
                                            "\r\n"s,
                                            "\x7f"s,
                                            "\x1b[31m"s,
                                            "\""s,
                                            "\"\"\""s,
                                            "'''"s,
                                            "["s,
                                            "]]"s,
                                            "{"s,
                                            "}"s,
                                            "="s,
                                            "."s,
                                            ","s,
                                            "#"s,
                                            "\\"s,
                                            "\n"s,
                                            "\t"s,
                                            "[[model]]\n"s,
                                            "[model.rope_scaling]\n"s,
                                            "[a.\"b\\nc\"]\n"s};
  return all;
}

std::string odd_key(Dice& dice) {
  Config config;
  const std::vector<Field> all = fields(config);
  std::string key = dice.of(all).key;
  if (dice.one_in(8)) key = key.substr(0, dice.below(key.size() + 1));
  if (dice.one_in(8)) key.insert(dice.below(key.size() + 1), dice.of(odd_bytes()));
  if (dice.one_in(16)) key = key.substr(key.find('.') + 1);
  return key;
}

std::string repeated(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

// A line whose value, or whose key, is nested to some depth.
std::string deep_line(Dice& dice) {
  static const std::vector<size_t> depths{2, 30, 255, 256, 257, 1000, 20000};
  const size_t depth = dice.of(depths);
  const std::string names = repeated("a.", depth);
  switch (dice.below(5)) {
    case 0:
      return str("run.dir = ", repeated("[", depth), repeated("]", dice.one_in(4) ? 0 : depth), '\n');
    case 1:
      return str("run.dir = ", repeated("{a = ", depth), '1', repeated("}", depth), '\n');
    case 2:
      return str(names, "a = 1\n");
    case 3:
      return str('[', names, "a]\nb = 1\n");
    default:
      return str("[[", names, "a]]\n");
  }
}

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::string key_of(const std::string& line) { return line.substr(0, line.find('=')); }

void change_lines(std::string& text, Dice& dice) {
  Lines lines = lines_of(text);
  if (lines.empty()) return;
  const size_t at = dice.below(lines.size()), other = dice.below(lines.size());
  switch (dice.below(5)) {
    case 0:
      std::swap(lines[at], lines[other]);
      break;
    case 1:
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2:
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), std::string(lines[other]));
      break;
    case 3: {  // one key with the value of another
      const std::string key = key_of(lines[at]);
      lines[at] = key_of(lines[other]) + lines[at].substr(key.size());
      break;
    }
    default:
      lines[at] = key_of(lines[at]) + "= " + dice.of(odd_values());
  }
  text = joined(lines);
}

void change_bytes(std::string& text, Dice& dice) {
  const size_t at = dice.below(text.size() + 1), length = dice.below(text.size() - at + 1);
  switch (dice.below(6)) {
    case 0:
      if (at < text.size())
        text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ 1u << dice.below(8));
      break;
    case 1:
      text.insert(at, 1, static_cast<char>(dice.below(256)));
      break;
    case 2:
      text.insert(at, dice.of(odd_bytes()));
      break;
    case 3:
      text.erase(at, dice.one_in(2) ? 1 : length);
      break;
    case 4:
      text.insert(at, text.substr(at, length));
      break;
    default:
      text.resize(at);
  }
}

}  // namespace

void change_toml(std::string& text, Dice& dice) {
  switch (dice.below(8)) {
    case 0:
    case 1:
      change_bytes(text, dice);
      break;
    case 2:
      text = odd_key(dice) + " = " + dice.of(odd_values()) + "\n" + text;
      break;
    case 3:
      text = (dice.one_in(2) ? text : "") + deep_line(dice);
      break;
    case 4:
      text += dice.of(valid_configs());
      break;  // repeats every section
    default:
      change_lines(text, dice);
  }
}

std::string odd_override(Dice& dice) {
  std::string text = odd_key(dice) + "=" + dice.of(odd_values());
  if (dice.one_in(6)) change_bytes(text, dice);
  if (dice.one_in(100)) text = "run.dir=" + deep_line(dice);
  return text;
}

ConfigInput mutated_config(uint64_t seed, int64_t number) {
  Dice dice(seed, "config fuzz", number);
  ConfigInput input{.toml = dice.of(valid_configs()), .overrides = {}};
  for (size_t i = dice.below(3); i > 0; --i) change_toml(input.toml, dice);
  for (size_t i = dice.below(3); i > 0; --i) input.overrides.push_back(odd_override(dice));
  return input;
}

}  // namespace flatshard::test
