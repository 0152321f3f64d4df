// The methods of strings, dictionaries and lists. Lists and dictionaries are immutable: a method that would
// change one throws an Error.

#include <algorithm>
#include <map>
#include <set>

#include "runtime/check.h"
#include "text/jinja/jinja_operations.h"
#include "text/jinja/jinja_print.h"

namespace flatshard {
namespace {

using V = JinjaValue;
using A = BoundArguments;

template <bool kLeft, bool kRight>
JinjaValue strip(const JinjaValue& object, const BoundArguments& arguments) {
  const SourcedText* characters = arguments.text(0);
  if (characters != nullptr && characters->empty()) return object;
  const auto [begin, end] = stripped(object.bytes(), kLeft, kRight, characters ? characters->bytes() : "");
  return object.text().slice(begin, end);
}

// The parts between runs of white space. After `most` parts, unless `most` is negative, the rest is one part.
JinjaValue::Items split_at_space(const SourcedText& text, int64_t most, bool from_right) {
  const std::string_view bytes = text.bytes();
  std::vector<StrippedRange> words;
  for (size_t at = 0, end = 0; at < bytes.size(); at = end) {
    if (is_space(next_code_point(bytes, end))) continue;
    if (words.empty() || words.back().end != at) words.push_back({at, at});
    words.back().end = end;
  }
  if (most >= 0 && std::ssize(words) > most) {
    const auto whole =
        words.begin() + (from_right ? std::ssize(words) - most : most);  // the first or last one
    if (from_right)
      words.erase(words.begin(), whole - 1)->begin = 0;
    else
      words.erase(std::next(whole), words.end()), words.back().end = bytes.size();
  }
  JinjaValue::Items parts;
  for (const StrippedRange& word : words) add_item(parts, text.slice(word.begin, word.end));
  return parts;
}

// Bounds the length of the part, because the time of a search from the right is proportional to it.
const std::string& short_part(const std::string& part) {
  constexpr size_t kMost = 1000;
  check(part.size() <= kMost, "the text to find from the right has ", part.size(),
        " bytes, must have at most ", kMost);
  return part;
}

JinjaValue split(const JinjaValue& object, const BoundArguments& arguments, bool from_right) {
  const SourcedText& text = object.text();
  const SourcedText* separator = arguments.text(0);
  const int64_t most = arguments.integer(1, -1);
  if (separator == nullptr) return JinjaValue::list(split_at_space(text, most, from_right));
  const std::string &bytes = text.bytes(), &part = separator->bytes();
  check(!part.empty(), "str.split has an empty separator");
  std::vector<size_t> found;
  if (from_right)
    for (size_t at = bytes.rfind(short_part(part));
         at != bytes.npos && (most < 0 || std::ssize(found) < most);
         at = at < part.size() ? bytes.npos : bytes.rfind(part, at - part.size()))
      found.push_back(at);
  else
    for (size_t at = find_part(bytes, part); at != bytes.npos && (most < 0 || std::ssize(found) < most);
         at = find_part(bytes, part, at + part.size()))
      found.push_back(at);
  if (from_right) std::reverse(found.begin(), found.end());
  JinjaValue::Items parts;
  size_t begin = 0;
  for (const size_t at : found) {
    add_item(parts, text.slice(begin, at));
    begin = at + part.size();
  }
  parts.emplace_back(text.slice(begin, text.size()));
  return JinjaValue::list(std::move(parts));
}

// startswith and endswith accept one part or a tuple of parts.
template <class Matches>
JinjaValue any_part(const JinjaValue& parts, Matches&& matches) {
  if (!parts.is(JinjaKind::list)) return matches(parts.bytes());
  const JinjaValue::Items& all = parts.list().values;
  return std::any_of(all.begin(), all.end(), [&](const JinjaValue& part) { return matches(part.bytes()); });
}

// Converts each letter that follows no letter to upper case, and all others to lower case.
JinjaValue title(const JinjaValue& object, const BoundArguments&) {
  const SourcedText& text = object.text();
  SourcedText result;
  bool after_letter = false;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = after_code_point(text.bytes(), at);
    const SourcedText letter = text.slice(at, end), small = lower(letter), large = upper(letter);
    result.append(after_letter ? small : large);
    after_letter = small.bytes() != large.bytes();
  }
  return result;
}

// Formats fields without a format specification: {}, {0} and {name}.
JinjaValue format(const JinjaValue& object, const JinjaArguments& arguments) {
  const SourcedText& text = object.text();
  const std::string& bytes = text.bytes();
  SourcedText result;
  size_t begin = 0, next = 0;
  for (size_t at = bytes.find_first_of("{}"); at != bytes.npos; at = bytes.find_first_of("{}", begin)) {
    result.append(text, begin, at);
    if (at + 1 < bytes.size() && bytes[at] == bytes[at + 1]) {  // {{ stands for {
      result.append(text, at, at + 1);
      begin = at + 2;
      continue;
    }
    const size_t end = bytes.find('}', at);
    check(bytes[at] == '{' && end != bytes.npos, "str.format() has a single brace in \"", bytes, '"');
    const std::string field = bytes.substr(at + 1, end - at - 1);
    const bool is_index = field.size() < 5 && field.find_first_not_of("0123456789") == field.npos;
    const size_t index = field.empty() ? next++ : is_index ? static_cast<size_t>(std::stoi(field)) : SIZE_MAX;
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first.bytes() == field; });
    const bool is_named = index == SIZE_MAX && named != arguments.named.end();
    check(is_named || index < arguments.positional.size(), "str.format() has no argument for {", field,
          "}; fields with a format are not supported");
    result.append(jinja_str(is_named ? named->second : arguments.positional[index]));
    begin = end + 1;
  }
  result.append(text, begin, text.size());
  return result;
}

JinjaValue joined(const JinjaValue& object, const BoundArguments& arguments) {
  SourcedText result;
  bool is_first = true;
  for (const JinjaValue& item : arguments.required(0).items()) {
    if (!std::exchange(is_first, false)) result.append(object.text());
    result.append(item.text());
  }
  return result;
}

JinjaValue lines(const JinjaValue& object, const BoundArguments& arguments) {
  const SourcedText& text = object.text();
  const std::string& bytes = text.bytes();
  JinjaValue::Items found;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find_first_of("\n\r\v\f\x1c\x1d\x1e", begin), bytes.size());
    const size_t next = std::min(end + (bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1), bytes.size());
    add_item(found, text.slice(begin, arguments.truth(0) ? next : end));
    begin = next;
  }
  return JinjaValue::list(std::move(found));
}

int64_t code_points_before(const std::string& bytes, size_t at) {
  return at == bytes.npos ? -1
                          : static_cast<int64_t>(count_code_points(std::string_view(bytes).substr(0, at)));
}

const JinjaBuiltins kTextMethods{
    {"strip", {{"chars"}, strip<true, true>}},
    {"lstrip", {{"chars"}, strip<true, false>}},
    {"rstrip", {{"chars"}, strip<false, true>}},
    {"split", {{"sep", "maxsplit"}, [](const V& v, const A& a) { return split(v, a, false); }}},
    {"rsplit", {{"sep", "maxsplit"}, [](const V& v, const A& a) { return split(v, a, true); }}},
    {"splitlines", {{"keepends"}, lines}},
    {"join", {{"iterable"}, joined}},
    {"title", {{}, title}},
    {"upper", {{}, [](const V& v, const A&) { return V(upper(v.text())); }}},
    {"lower", {{}, [](const V& v, const A&) { return V(lower(v.text())); }}},
    {"capitalize", {{}, [](const V& v, const A&) { return jinja_filter("capitalize", v, {}); }}},
    {"replace",
     {{"old", "new", "count"},
      [](const V& v, const A& a) {
        return jinja_filter("replace", v, {{a.required(0), a.required(1), a.integer(2, -1)}, {}});
      }}},
    {"startswith",
     {{"prefix"},
      [](const V& v, const A& a) {
        return any_part(a.required(0), [&](const std::string& part) { return v.bytes().starts_with(part); });
      }}},
    {"endswith",
     {{"suffix"},
      [](const V& v, const A& a) {
        return any_part(a.required(0), [&](const std::string& part) { return v.bytes().ends_with(part); });
      }}},
    {"find",
     {{"sub"},
      [](const V& v, const A& a) {
        return V(code_points_before(v.bytes(), find_part(v.bytes(), a.required(0).bytes())));
      }}},
    {"rfind",
     {{"sub"},
      [](const V& v, const A& a) {
        return V(code_points_before(v.bytes(), v.bytes().rfind(short_part(a.required(0).bytes()))));
      }}},
    {"count",
     {{"sub"},
      [](const V& v, const A& a) {
        const std::string& part = a.required(0).bytes();
        int64_t count = part.empty() ? v.length() + 1 : 0;
        for (size_t at = find_part(v.bytes(), part); !part.empty() && at != std::string::npos; ++count)
          at = find_part(v.bytes(), part, at + part.size());
        return V(count);
      }}},
    {"isdigit",
     {{},
      [](const V& v, const A&) {
        check(v.length() == std::ssize(v.bytes()), "isdigit of text outside ASCII is not supported");
        return V(!v.bytes().empty() && v.bytes().find_first_not_of("0123456789") == std::string::npos);
      }}},
};

JinjaValue pairs_as(const JinjaValue& dict, int part) {
  JinjaValue::Items items;
  for (const auto& [key, value] : dict.dict().pairs)
    items.push_back(part == 0 ? key : part == 1 ? value : JinjaValue::tuple({key, value}));
  return jinja_list(JinjaList::Form::view, std::move(items));
}

const JinjaBuiltins kDictMethods{
    {"keys", {{}, [](const V& v, const A&) { return pairs_as(v, 0); }}},
    {"values", {{}, [](const V& v, const A&) { return pairs_as(v, 1); }}},
    {"items", {{}, [](const V& v, const A&) { return pairs_as(v, 2); }}},
    {"copy", {{}, [](const V& v, const A&) { return v; }}},
    {"get",
     {{"key", "default"},
      [](const V& v, const A& a) {
        const V* found = v.dict().find(a.required(0));
        return found != nullptr ? *found : a.find(1) != nullptr ? *a.find(1) : V();
      }}},
};

const JinjaBuiltins kListMethods{
    {"index",
     {{"value"},
      [](const V& v, const A& a) {
        const V::Items& items = v.list().values;
        const auto found = std::find_if(items.begin(), items.end(),
                                        [&](const V& item) { return jinja_equal(item, a.required(0)); });
        check(found != items.end(), "list.index() finds no such item");
        return V(int64_t{found - items.begin()});
      }}},
    {"count",
     {{"value"},
      [](const V& v, const A& a) {
        const V::Items& items = v.list().values;
        return V(static_cast<int64_t>(std::count_if(
            items.begin(), items.end(), [&](const V& item) { return jinja_equal(item, a.required(0)); })));
      }}},
    {"copy", {{}, [](const V& v, const A&) { return v; }}},
};

const JinjaBuiltins* methods_of(const JinjaValue& object) {
  if (object.is(JinjaKind::text)) return &kTextMethods;
  if (object.is(JinjaKind::dict)) return &kDictMethods;
  return object.is(JinjaKind::list) ? &kListMethods : nullptr;
}

bool changes_its_object(const JinjaValue& object, const std::string& name) {
  static const std::set<std::string> of_dict{"clear", "pop", "popitem", "setdefault", "update"};
  static const std::set<std::string> of_list{"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
  return (object.is(JinjaKind::dict) && of_dict.contains(name)) ||
         (object.is(JinjaKind::list) && of_list.contains(name));
}

bool is_format(const JinjaValue& object, const std::string& name) {
  return object.is(JinjaKind::text) && name == "format";
}

}  // namespace

bool has_jinja_method(const JinjaValue& object, const std::string& name) {
  const JinjaBuiltins* methods = methods_of(object);
  return methods != nullptr &&
         (methods->contains(name) || is_format(object, name) || changes_its_object(object, name));
}

JinjaValue jinja_method(const std::string& name, const JinjaValue& object, const JinjaArguments& arguments) {
  check(!changes_its_object(object, name), object.type(), '.', name,
        "() is not allowed: templates cannot change a ", object.type());
  if (is_format(object, name)) return format(object, arguments);
  const JinjaBuiltins* methods = methods_of(object);
  const auto found = methods->find(name);
  const std::string function = str(object.type(), '.', name, "()");
  return found->second.apply(object, BoundArguments(function, arguments, found->second.parameters));
}

}  // namespace flatshard
