// The tests of Jinja2: x is defined, x is divisibleby(3).

#include <map>

#include "runtime/check.h"
#include "text/jinja/jinja_operations.h"

namespace flatshard {
namespace {

using V = JinjaValue;
using A = BoundArguments;

struct Test {
  std::vector<const char*> parameters;
  bool (*holds)(const JinjaValue& subject, const BoundArguments& arguments);
};

bool is_form(const V& value, JinjaList::Form most) {
  return value.is(JinjaKind::list) && value.list().form <= most;
}

bool equal(const V& v, const A& a) { return jinja_equal(v, a.required(0)); }
bool not_equal(const V& v, const A& a) { return !equal(v, a); }
bool less(const V& v, const A& a) { return jinja_order(v, a.required(0)) < 0; }
bool less_or_equal(const V& v, const A& a) { return jinja_order(v, a.required(0)) <= 0; }
bool greater(const V& v, const A& a) { return jinja_order(v, a.required(0)) > 0; }
bool greater_or_equal(const V& v, const A& a) { return jinja_order(v, a.required(0)) >= 0; }

bool is_iterable(const V& v, const A&) {
  return v.is(JinjaKind::list) || v.is(JinjaKind::text) || v.is(JinjaKind::dict) ||
         v.is(JinjaKind::undefined);
}
// Whether the value has a length and can be indexed.
bool is_sequence(const V& v, const A&) {
  return v.is(JinjaKind::text) || v.is(JinjaKind::dict) || v.is(JinjaKind::undefined) ||
         is_form(v, JinjaList::Form::range);
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> all{
      {"!=", {{"other"}, not_equal}},
      {"<", {{"other"}, less}},
      {"<=", {{"other"}, less_or_equal}},
      {"==", {{"other"}, equal}},
      {">", {{"other"}, greater}},
      {">=", {{"other"}, greater_or_equal}},
      {"boolean", {{}, [](const V& v, const A&) { return v.is(JinjaKind::boolean); }}},
      {"callable", {{}, [](const V& v, const A&) { return v.is(JinjaKind::function); }}},
      {"defined", {{}, [](const V& v, const A&) { return !v.is(JinjaKind::undefined); }}},
      {"divisibleby",
       {{"num"}, [](const V& v, const A& a) { return jinja_binary("%", v, a.required(0)).number() == 0; }}},
      {"eq", {{"other"}, equal}},
      {"equalto", {{"other"}, equal}},
      {"even", {{}, [](const V& v, const A&) { return v.integer() % 2 == 0; }}},
      {"false", {{}, [](const V& v, const A&) { return v.is(JinjaKind::boolean) && !v.boolean(); }}},
      {"float", {{}, [](const V& v, const A&) { return v.is(JinjaKind::number); }}},
      {"ge", {{"other"}, greater_or_equal}},
      {"greaterthan", {{"other"}, greater}},
      {"gt", {{"other"}, greater}},
      {"in", {{"seq"}, [](const V& v, const A& a) { return jinja_contains(a.required(0), v); }}},
      {"integer", {{}, [](const V& v, const A&) { return v.is(JinjaKind::integer); }}},
      {"iterable", {{}, is_iterable}},
      {"le", {{"other"}, less_or_equal}},
      {"lessthan", {{"other"}, less}},
      {"lt", {{"other"}, less}},
      {"mapping", {{}, [](const V& v, const A&) { return v.is(JinjaKind::dict); }}},
      {"ne", {{"other"}, not_equal}},
      {"none", {{}, [](const V& v, const A&) { return v.is(JinjaKind::none); }}},
      {"number", {{}, [](const V& v, const A&) { return v.is_numeric(); }}},
      {"odd", {{}, [](const V& v, const A&) { return v.integer() % 2 != 0; }}},
      {"sequence", {{}, is_sequence}},
      {"string", {{}, [](const V& v, const A&) { return v.is(JinjaKind::text); }}},
      {"true", {{}, [](const V& v, const A&) { return v.is(JinjaKind::boolean) && v.boolean(); }}},
      {"undefined", {{}, [](const V& v, const A&) { return v.is(JinjaKind::undefined); }}},
  };
  return all;
}

}  // namespace

bool jinja_test(const std::string& name, const JinjaValue& subject, const JinjaArguments& arguments) {
  const auto found = tests().find(name);
  check(found != tests().end(), "the test '", name, "' is not supported");
  return found->second.holds(subject, A(name, arguments, found->second.parameters));
}

}  // namespace flatshard
