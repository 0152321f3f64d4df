// The tests of Jinja2: x is defined, x is divisibleby(3).

#include <map>

#include "runtime/check.h"
#include "text/jinja/jinja_operations.h"

namespace flatshard {
namespace {

using V = JinjaValue;

// The tests that are operators, under all their names.
const std::map<std::string, const char*> kOperators{
    {"!=", "!="}, {"<", "<"},        {"<=", "<="}, {"==", "=="},         {">", ">"},  {">=", ">="},
    {"eq", "=="}, {"equalto", "=="}, {"ge", ">="}, {"greaterthan", ">"}, {"gt", ">"}, {"in", "in"},
    {"le", "<="}, {"lessthan", "<"}, {"lt", "<"},  {"ne", "!="}};

// The tests that ask for a kind of value.
const std::map<std::string, JinjaKind> kKinds{
    {"boolean", JinjaKind::boolean}, {"callable", JinjaKind::function},  {"float", JinjaKind::number},
    {"integer", JinjaKind::integer}, {"mapping", JinjaKind::dict},       {"none", JinjaKind::none},
    {"string", JinjaKind::text},     {"undefined", JinjaKind::undefined}};

bool is_form(const V& value, JinjaList::Form most) {
  return value.is(JinjaKind::list) && value.list().form <= most;
}

// Whether the value is of a kind that has a length and members, or counts as an empty one.
bool is_collection(const V& v) {
  return v.is(JinjaKind::text) || v.is(JinjaKind::dict) || v.is(JinjaKind::undefined);
}

const std::map<std::string, bool (*)(const JinjaValue&)> kOthers{
    {"defined", [](const V& v) { return !v.is(JinjaKind::undefined); }},
    {"even", [](const V& v) { return v.integer() % 2 == 0; }},
    {"false", [](const V& v) { return v.is(JinjaKind::boolean) && !v.boolean(); }},
    {"iterable", [](const V& v) { return is_collection(v) || v.is(JinjaKind::list); }},
    {"number", [](const V& v) { return v.is_numeric(); }},
    {"odd", [](const V& v) { return v.integer() % 2 != 0; }},
    {"sequence", [](const V& v) { return is_collection(v) || is_form(v, JinjaList::Form::range); }},
    {"true", [](const V& v) { return v.is(JinjaKind::boolean) && v.boolean(); }}};

}  // namespace

bool jinja_test(const std::string& name, const JinjaValue& subject, const JinjaArguments& arguments) {
  if (const auto found = kOperators.find(name); found != kOperators.end())
    return jinja_compare(found->second, subject,
                         BoundArguments(name, arguments, {name == "in" ? "seq" : "other"}).required(0));
  if (name == "divisibleby")
    return jinja_binary("%", subject, BoundArguments(name, arguments, {"num"}).required(0)).number() == 0;
  const auto kind = kKinds.find(name);
  const auto other = kOthers.find(name);
  check(kind != kKinds.end() || other != kOthers.end(), "the test '", name, "' is not supported");
  const BoundArguments none(name, arguments, {});  // an Error if there are any
  return kind != kKinds.end() ? subject.is(kind->second) : other->second(subject);
}

}  // namespace flatshard
