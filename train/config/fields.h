#pragma once
// The keys of a config (config.h), in one list: fields() has a line for each, with its value, its help, its
// bounds, and its rule for a run that resumes. Configs are parsed, printed, documented and compared by this
// list alone. The names of an enum come from runtime/named.h; the help lists them and errors quote them.

#include <utility>

#include "runtime/choice.h"
#include "train/config/config.h"

namespace flatshard {

// A member of a config, of any type that a key can have.
using Member = std::variant<Choice, std::string*, int64_t*, double*, bool*, std::vector<std::string>*,
                            std::vector<int64_t>*, std::vector<double>*, std::array<double, 2>*,
                            std::optional<bool>*, std::optional<int64_t>*, std::optional<double>*,
                            ModulePatterns*, std::map<std::string, double>*, DeviceMap*, DataFiles*>;

inline Member member_of(Member member) { return member; }
template <Named E>
Member member_of(E* member) {
  return choice(member);
}

// The bounds of a number.
struct Bounds {
  double least = -1e300, most = 1e300;
};

// The other spelling that a text field accepts, if any: a number, or true and false.
enum class Spelling { text, or_number, or_flag };

// The rule for a key whose value differs when a run resumes (save/run_start.h).
enum class OnResume {
  fixed,       // must not change: the checkpoint's contents depend on it
  changes,     // may change: later steps depend on it, and the change is recorded
  moves_rate,  // may change, is recorded, and the learning rate may jump
  reorders,    // may change, is recorded, and the data are reordered: their epoch begins again
  content,     // may name another file: other content is recorded, and may move the rate and reorder
  noted,       // may change: at most rounding depends on it, so only the header notes it
  silent,      // may change without a note
};
struct ResumeRule {
  OnResume rule;
  const char* reason;  // fixed: a clause about the checkpoint, such as "whose adapter it continues"

  ResumeRule(OnResume r = OnResume::fixed, const char* why = "") : rule(r), reason(why) {}
  bool records() const {
    return rule == OnResume::changes || rule == OnResume::moves_rate || rule == OnResume::reorders;
  }
};

// A value as a config has it, for the help: "\"runs/first\"".
struct Example {
  std::string value;
};

// One key.
struct Field {
  std::string key;  // "optimizer.lr"
  Member member;
  std::string help;
  Bounds bounds{};
  Spelling spelling = Spelling::text;
  std::optional<ResumeRule> on_resume{};  // the rule of the line, else of its section; neither: fixed
  Example example{};                      // "" for flags and choices

  // `more` are bounds, a spelling, a rule for resume and an example, in any order.
  template <class Value, class... More>
  Field(std::string name, Value value, std::string about, More... more)
      : key(std::move(name)), member(member_of(value)), help(std::move(about)) {
    (add(more), ...);
  }

  // The names of a choice; empty for other fields.
  std::vector<std::string> names() const {
    const Choice* const choice = std::get_if<Choice>(&member);
    return choice ? choice->names : std::vector<std::string>{};
  }

 private:
  void add(Bounds b) { bounds = b; }
  void add(Spelling s) { spelling = s; }
  void add(ResumeRule r) { on_resume = r; }
  void add(Example e) { example = std::move(e); }
};

// All keys, in the order of the help, with their values in this config.
std::vector<Field> fields(Config& c);

// The key of this name; null if there is none.
const Field* field_named(const std::vector<Field>& known, const std::string& key);

// The two parts of a key: "model.rope_scaling.kind" is split into "model.rope_scaling" and "kind". A key
// without a dot has the section "".
std::string section_of(const std::string& key);
std::string name_in_section(const std::string& key);

// The value of a field as TOML, "" if it has none.
std::string value_of(const Field& field);
// A value that a user might set, as TOML. `field` has its default.
std::string example_of(const Field& field);

// Name, meaning, choices, default and an example of a key.
std::string help_line(const Field& field);
// The keys of a help text: those that most runs set, or all.
enum class HelpLevel { usual, all };
std::string fields_help(HelpLevel level);

// All that is known about a key, or a help text for the keys of a section. An Error for any other name.
std::string explained(const std::string& name);

}  // namespace flatshard
