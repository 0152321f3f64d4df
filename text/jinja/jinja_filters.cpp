// The filters of Jinja2 that chat templates use, and tojson as Hugging Face transformers defines it.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "runtime/check.h"
#include "text/jinja/jinja_operations.h"
#include "text/jinja/jinja_print.h"

namespace flatshard {
namespace {

using V = JinjaValue;
using A = BoundArguments;

V generator(V::Items items) { return jinja_list(JinjaList::Form::generator, std::move(items)); }

// Returns a member of a member: "a.b.0".
V member_at(V value, const V& path) {
  if (!path.is(JinjaKind::text)) return jinja_item(value, path);
  const std::string& names = path.bytes();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool is_index =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
    value = jinja_item(value, is_index ? V(int64_t{std::stoll(name)}) : V(SourcedText(name)));
    begin = end + 1;
  }
  return value;
}

// The key that sort, unique and dictsort compare: the value or one of its members, in lower case unless
// `exact`.
V sort_key(const V& value, const V* attribute, bool exact) {
  const V key = attribute == nullptr || attribute->is(JinjaKind::none) ? value : member_at(value, *attribute);
  return !exact && key.is(JinjaKind::text) ? V(lower(key.text())) : key;
}

template <class Key>
void sort_by(V::Items& items, bool reverse, Key&& key) {
  std::vector<std::pair<V, V>> keyed;
  for (V& item : items) keyed.emplace_back(key(item), std::move(item));
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? jinja_order(b.first, a.first) < 0 : jinja_order(a.first, b.first) < 0;
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
}

V sort(const V& subject, const A& a) {
  V::Items items = subject.items();
  sort_by(items, a.truth(0), [&](const V& item) { return sort_key(item, a.find(2), a.truth(1)); });
  return V::list(std::move(items));
}

V dictsort(const V& subject, const A& a) {
  const SourcedText* by = a.text(1);
  check(by == nullptr || by->bytes() == "key" || by->bytes() == "value", "dictsort sorts by key or value");
  const V part(int64_t{by != nullptr && by->bytes() == "value"});
  V::Items items;
  for (const auto& [key, value] : subject.dict().pairs) items.push_back(V::tuple({key, value}));
  sort_by(items, a.truth(2),
          [&](const V& item) { return sort_key(jinja_item(item, part), nullptr, a.truth(0)); });
  return V::list(std::move(items));
}

V unique(const V& subject, const A& a) {
  std::set<std::string> seen;
  V::Items found;
  for (const V& item : subject.items())
    if (seen.insert(jinja_key(sort_key(item, a.find(1), a.truth(0)))).second) found.push_back(item);
  return generator(std::move(found));
}

V replace(const V& subject, const A& a) {
  const SourcedText text = jinja_str(subject), old = jinja_str(a.required(0)),
                    with = jinja_str(a.required(1));
  const int64_t most = a.integer(2, -1);
  check(!old.empty(), "replace of an empty text is not supported");
  SourcedText result;
  size_t begin = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    const size_t at = find_part(text.bytes(), old.bytes(), begin);
    if (at == std::string::npos) break;
    result.append(text, begin, at);
    result.append(with);
    begin = at + old.size();
  }
  result.append(text, begin, text.size());
  return result;
}

V join(const V& subject, const A& a) {
  const SourcedText* separator = a.text(0);
  SourcedText result;
  bool is_first = true;
  for (const V& item : subject.items()) {
    if (!std::exchange(is_first, false) && separator != nullptr) result.append(*separator);
    result.append(jinja_str(a.find(1) == nullptr ? item : member_at(item, *a.find(1))));
  }
  return result;
}

SourcedText spaces(int64_t count) {
  constexpr int64_t kMost = 1000;
  check(count <= kMost, "an indention has ", count, " spaces, must have at most ", kMost);
  return SourcedText(std::string(static_cast<size_t>(std::max<int64_t>(0, count)), ' '));
}

V indent(const V& subject, const A& a) {
  const V* width = a.find(0);
  const bool is_text = width != nullptr && width->is(JinjaKind::text);
  const SourcedText indention = is_text ? width->text() : spaces(a.integer(0, 4));
  SourcedText text = subject.text();
  text.append("\n");  // an empty text is a line, too
  const V lines = jinja_method("splitlines", text, {});
  SourcedText result;
  bool is_first = true;
  for (const V& line : lines.list().values) {
    if (!is_first) result.append("\n");
    if (is_first ? a.truth(1) : a.truth(2) || !line.text().empty()) result.append(indention);
    result.append(line.text());
    is_first = false;
  }
  return result;
}

V capitalize(const V& subject, const A&) {
  const SourcedText text = jinja_str(subject);
  if (text.empty()) return text;
  const size_t first = after_code_point(text.bytes(), 0);
  SourcedText result = upper(text.slice(0, first));
  result.append(lower(text.slice(first, text.size())));
  return result;
}

// A word begins after a space, a hyphen or an opening bracket, unlike in str.title().
V title(const V& subject, const A&) {
  const SourcedText text = jinja_str(subject);
  SourcedText result;
  bool begins = true;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    const char32_t c = next_code_point(text.bytes(), end);
    const SourcedText letter = text.slice(at, end);
    result.append(begins ? upper(letter) : lower(letter));
    begins = is_space(c) ||
             (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  }
  return result;
}

V extreme(const V& subject, const A& a, int sign) {
  const V* best = nullptr;
  const V::Items items = subject.items();
  for (const V& item : items) {
    const auto key = [&](const V& value) { return sort_key(value, a.find(1), a.truth(0)); };
    if (best == nullptr || sign * jinja_order(key(item), key(*best)) > 0) best = &item;
  }
  return best == nullptr ? V::undefined("an empty sequence has no smallest and no largest item") : *best;
}

V safe(const V& subject, const A&) {
  SourcedText text = jinja_str(subject);
  text.mark_markup();
  return text;
}

// Python's int() and float(), with a default for values that they refuse.
V to_integer(const V& subject, const A& a) {
  const V otherwise = a.find(0) == nullptr ? V(int64_t{0}) : *a.find(0);
  if (subject.is(JinjaKind::boolean) || subject.is(JinjaKind::integer)) return subject.integer();
  double number = 0;
  if (subject.is(JinjaKind::text)) {
    const auto [begin, end] = stripped(subject.bytes(), true, true);
    const char *first = subject.bytes().data() + begin, *last = subject.bytes().data() + end;
    if (end - begin > 1 && *first == '+' && first[1] != '-') ++first;
    int64_t integer = 0;
    const auto read = std::from_chars(first, last, integer, static_cast<int>(a.integer(1, 10)));
    if (first != last && read.ec == std::errc() && read.ptr == last) return integer;
    const auto as_number = std::from_chars(first, last, number);
    if (first == last || as_number.ec != std::errc() || as_number.ptr != last) return otherwise;
  } else if (subject.is(JinjaKind::number)) {
    number = subject.number();
  } else {
    subject.check_defined();
    return otherwise;
  }
  return std::abs(number) < 0x1p63 ? V(static_cast<int64_t>(number)) : otherwise;
}

V to_float(const V& subject, const A& a) {
  if (subject.is_numeric()) return subject.number();
  const V otherwise = a.find(0) == nullptr ? V(0.0) : *a.find(0);
  subject.check_defined();
  if (!subject.is(JinjaKind::text)) return otherwise;
  const auto [begin, end] = stripped(subject.bytes(), true, true);
  const char *first = subject.bytes().data() + begin, *last = subject.bytes().data() + end;
  double number = 0;
  const auto read = std::from_chars(first, last, number);
  return first != last && read.ec == std::errc() && read.ptr == last ? V(number) : otherwise;
}

V tojson(const V& subject, const A& a) {
  JsonStyle style{
      .indent = {}, .item_separator = {}, .key_separator = {}, .sort_keys = a.truth(3), .ascii = a.truth(0)};
  if (const V* indent = a.find(1); indent != nullptr && indent->is(JinjaKind::text))
    style.indent = indent->text();
  else if (indent != nullptr && !indent->is(JinjaKind::none))
    style.indent = spaces(indent->integer());
  if (const V* separators = a.find(2); separators != nullptr && !separators->is(JinjaKind::none)) {
    style.item_separator = jinja_item(*separators, int64_t{0}).text();
    style.key_separator = jinja_item(*separators, int64_t{1}).text();
  }
  return jinja_json(subject, style);
}

V reverse(const V& subject, const A&) {
  if (subject.is(JinjaKind::text)) return jinja_slice(subject, {}, {}, -1);
  V::Items items = subject.items();
  std::reverse(items.begin(), items.end());
  return generator(std::move(items));
}

V first(const V& subject, const A&) {
  const V::Items items = subject.items();
  return items.empty() ? V::undefined("the first item of an empty sequence is undefined") : items.front();
}

V last(const V& subject, const A&) {
  const V::Items items = subject.items();
  return items.empty() ? V::undefined("the last item of an empty sequence is undefined") : items.back();
}

V trim(const V& subject, const A& a) {
  return jinja_method("strip", jinja_str(subject), {{a.find(0) ? *a.find(0) : V()}, {}});
}

const JinjaBuiltins kFilters{
    {"abs",
     {{},
      [](const V& v, const A&) {
        return v.is(JinjaKind::number) ? V(std::abs(v.number())) : V(std::abs(v.integer()));
      }}},
    {"capitalize", {{}, capitalize}},
    {"count", {{}, [](const V& v, const A&) { return V(v.length()); }}},
    {"default",
     {{"default_value", "boolean"},
      [](const V& v, const A& a) {
        if (!v.is(JinjaKind::undefined) && (v.truth() || !a.truth(1))) return v;
        return a.find(0) == nullptr ? V(SourcedText()) : *a.find(0);
      }}},
    {"dictsort", {{"case_sensitive", "by", "reverse"}, dictsort}},
    {"first", {{}, first}},
    {"float", {{"default"}, to_float}},
    {"indent", {{"width", "first", "blank"}, indent}},
    {"int", {{"default", "base"}, to_integer}},
    {"items",
     {{},
      [](const V& v, const A&) {
        if (v.is(JinjaKind::undefined)) return generator({});
        return generator(jinja_method("items", v.dict().pairs.empty() ? V::dict({}) : v, {}).items());
      }}},
    {"join", {{"d", "attribute"}, join}},
    {"last", {{}, last}},
    {"length", {{}, [](const V& v, const A&) { return V(v.length()); }}},
    {"list", {{}, [](const V& v, const A&) { return V::list(v.items()); }}},
    {"lower", {{}, [](const V& v, const A&) { return V(lower(jinja_str(v))); }}},
    {"replace", {{"old", "new", "count"}, replace}},
    {"reverse", {{}, reverse}},
    {"max", {{"case_sensitive", "attribute"}, [](const V& v, const A& a) { return extreme(v, a, 1); }}},
    {"min", {{"case_sensitive", "attribute"}, [](const V& v, const A& a) { return extreme(v, a, -1); }}},
    {"safe", {{}, safe}},
    {"sort", {{"reverse", "case_sensitive", "attribute"}, sort}},
    {"string", {{}, [](const V& v, const A&) { return V(jinja_str(v)); }}},
    {"title", {{}, title}},
    {"tojson", {{"ensure_ascii", "indent", "separators", "sort_keys"}, tojson}},
    {"trim", {{"chars"}, trim}},
    {"unique", {{"case_sensitive", "attribute"}, unique}},
    {"upper", {{}, [](const V& v, const A&) { return V(upper(jinja_str(v))); }}},
};

JinjaArguments rest_of(const JinjaArguments& arguments, size_t first) {
  JinjaArguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<ptrdiff_t>(first));
  return rest;
}

// Every false value counts as empty, as in Jinja2.
V::Items items_if_any(const V& subject) { return subject.truth() ? subject.items() : V::Items(); }

// map(attribute="x"), map("filter", arguments...)
V map(const V& subject, const JinjaArguments& arguments) {
  V::Items items = items_if_any(subject);
  if (arguments.positional.empty()) {
    const A a("map", arguments, {"attribute", "default"});
    for (V& item : items) {
      item = member_at(item, a.required(0));
      if (item.is(JinjaKind::undefined) && a.find(1) != nullptr) item = *a.find(1);
    }
  } else {
    const JinjaArguments rest = rest_of(arguments, 1);
    for (V& item : items) item = jinja_filter(arguments.positional[0].bytes(), item, rest);
  }
  return generator(std::move(items));
}

// select("test", arguments...), selectattr("attribute", "test", arguments...); without a test, true values
V select(const V& subject, const JinjaArguments& arguments, bool by_attribute, bool wanted) {
  const std::vector<V>& given = arguments.positional;
  const size_t test = by_attribute ? 1 : 0;
  check(given.size() >= test, "selectattr and rejectattr need the name of an attribute");
  const JinjaArguments rest = rest_of(arguments, std::min(test + 1, given.size()));
  V::Items found;
  for (const V& item : items_if_any(subject)) {
    const V tested = by_attribute ? member_at(item, given[0]) : item;
    if ((given.size() > test ? jinja_test(given[test].bytes(), tested, rest) : tested.truth()) == wanted)
      found.push_back(item);
  }
  return generator(std::move(found));
}

}  // namespace

JinjaValue jinja_filter(const std::string& name, const JinjaValue& subject, const JinjaArguments& arguments) {
  if (name == "map") return map(subject, arguments);
  if (name == "select" || name == "reject") return select(subject, arguments, false, name == "select");
  if (name == "selectattr" || name == "rejectattr")
    return select(subject, arguments, true, name == "selectattr");
  const auto found = kFilters.find(name == "d" ? "default" : name);
  check(found != kFilters.end(), "the filter '", name, "' is not supported");
  return found->second.apply(subject, A(name, arguments, found->second.parameters));
}

}  // namespace flatshard
