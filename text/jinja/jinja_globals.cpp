#include <algorithm>

#include "runtime/check.h"
#include "text/jinja/jinja_operations.h"
#include "text/jinja/jinja_print.h"
#include "text/jinja/template_date.h"

namespace flatshard {
namespace {

constexpr int64_t kLongestRange = 100'000;  // Jinja2's limit in its sandbox

JinjaValue range(const JinjaArguments& arguments) {
  const auto& given = arguments.positional;
  check(!given.empty() && given.size() <= 3 && arguments.named.empty(),
        "range() takes one to three positional arguments");
  const int64_t begin = given.size() > 1 ? given[0].integer() : 0,
                end = given[given.size() > 1 ? 1 : 0].integer();
  const int64_t step = given.size() > 2 ? given[2].integer() : 1;
  check(step != 0, "range() has the step 0");
  JinjaValue::Items items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    check(std::ssize(items) < kLongestRange, "range() has more than ", kLongestRange, " items");
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return jinja_list(JinjaList::Form::range, std::move(items));
}

JinjaValue dict(const JinjaArguments& arguments) {
  JinjaValue::Pairs pairs;
  for (const JinjaValue& initial : arguments.positional)
    pairs.insert(pairs.end(), initial.dict().pairs.begin(), initial.dict().pairs.end());
  for (const auto& [name, value] : arguments.named) pairs.emplace_back(name, value);
  return JinjaValue::dict(pairs);
}

JinjaValue strftime_now(const JinjaArguments& arguments, const std::string& date) {
  const BoundArguments given("strftime_now()", arguments, {"format"});
  check(!date.empty(), "the template prints the date with strftime_now(), but no date is set");
  const std::string text = formatted_date(date, given.required(0).bytes());
  const std::vector<TextRun>& runs = given.required(0).text().runs();
  const auto data =
      std::find_if(runs.begin(), runs.end(), [](const TextRun& run) { return run.source != kFromTemplate; });
  return SourcedText(text, data == runs.end() ? kFromTemplate : data->source);
}

}  // namespace

const std::vector<std::string>& jinja_global_names() {
  static const std::vector<std::string> names{"dict", "namespace", "raise_exception", "range",
                                              "strftime_now"};
  return names;
}

JinjaValue jinja_global(const std::string& name, const JinjaArguments& arguments, const std::string& date) {
  if (name == "range") return range(arguments);
  if (name == "dict") return dict(arguments);
  if (name == "strftime_now") return strftime_now(arguments, date);
  if (name == "raise_exception")
    fail(jinja_str(BoundArguments("raise_exception()", arguments, {"message"}).required(0)).bytes());
  fail("the method " + name + "() is called without its object");
}

}  // namespace flatshard
