#pragma once
// The keys of a config (config.h), in one list: fields() has a line for each, with its value, its help, its
// bounds, and what a run that resumes may do with it. Configs are parsed, printed, documented and compared by
// this list alone. An enum's names are those of runtime/named.h, which the help lists and errors quote.

#include <utility>

#include "runtime/choice.h"
#include "train/config/config.h"

namespace flatshard {

// Where a config stores a value.
using Slot = std::variant<Choice, std::string*, int64_t*, double*, bool*, std::vector<std::string>*,
                          std::vector<int64_t>*, std::vector<double>*, std::array<double, 2>*,
                          std::optional<bool>*, std::optional<int64_t>*, std::optional<double>*,
                          ModulePatterns*, std::map<std::string, double>*, DeviceMap*, DataFiles*>;

inline Slot slot_of(Slot slot) { return slot; }
template <Named E>
Slot slot_of(E* slot) {
  return choice(slot);
}

// The bounds of a number.
struct Bounds {
  double least = -1e300, most = 1e300;
};

// How else a text may be written: as a number, or as true or false.
enum class Spelling { text, or_number, or_flag };

// What a run that resumes may do with a key (save/run_changes.h).
enum class OnResume {
  fixed,       // nothing: what the checkpoint contains depends on it
  changes,     // change it: later steps depend on it, and the change is recorded
  moves_rate,  // the same, and the learning rate may jump
  reorders,    // the same, and the data have another order: their epoch begins again
  content,     // name another file: the same content is a note, other content is recorded, and may do both
  noted,       // change it: no step depends on it, so that the header notes it and no more
  silent,      // the same, without a note
};
struct ResumeRule {
  OnResume rule;
  const char* reason;  // fixed: a clause about the checkpoint, such as "whose adapter it continues"

  ResumeRule(OnResume r = OnResume::fixed, const char* why = "") : rule(r), reason(why) {}
  bool records() const {
    return rule == OnResume::changes || rule == OnResume::moves_rate || rule == OnResume::reorders;
  }
};

// One key.
struct Field {
  std::string key;  // "optimizer.lr"
  Slot slot;
  std::string help;
  Bounds bounds{};
  Spelling spelling = Spelling::text;
  std::optional<ResumeRule> on_resume{};  // of the line, or else of its section; without either: fixed

  // `more` are bounds, a spelling and a rule for resume, in any order.
  template <class Value, class... More>
  Field(std::string name, Value value, std::string about, More... more)
      : key(std::move(name)), slot(slot_of(value)), help(std::move(about)) {
    (add(more), ...);
  }

  // Of a choice; empty for other fields.
  std::vector<std::string> names() const {
    const Choice* const choice = std::get_if<Choice>(&slot);
    return choice ? choice->names : std::vector<std::string>{};
  }

 private:
  void add(Bounds b) { bounds = b; }
  void add(Spelling s) { spelling = s; }
  void add(ResumeRule r) { on_resume = r; }
};

// All keys, in the order of the help, with their values in this config.
std::vector<Field> fields(Config& c);

// "model.rope_scaling" and "kind" of "model.rope_scaling.kind"; the section is "" without a dot.
std::string section_of(const std::string& key);
std::string name_in_section(const std::string& key);

// The help text: name, meaning, choices and default of every key.
std::string fields_help();

}  // namespace flatshard
