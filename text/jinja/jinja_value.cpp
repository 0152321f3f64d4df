#include "text/jinja/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

bool is_integral(const JinjaValue& value) {
  return value.is(JinjaKind::boolean) || value.is(JinjaKind::integer);
}

// The key of a number. A double that is a whole number has the same key as the integer.
std::string number_key(double value) {
  if (value == std::floor(value) && std::abs(value) < 0x1p62) return str('i', static_cast<int64_t>(value));
  return str('f', std::hexfloat, value);
}

bool equal_items(const JinjaValue::Items& a, const JinjaValue::Items& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), jinja_equal);
}

bool equal_dicts(const JinjaDict& a, const JinjaDict& b) {
  return a.pairs.size() == b.pairs.size() &&
         std::all_of(a.pairs.begin(), a.pairs.end(), [&](const auto& pair) {
           const JinjaValue* other = b.find(pair.first);
           return other != nullptr && jinja_equal(pair.second, *other);
         });
}

}  // namespace

JinjaValue JinjaValue::undefined(std::string what) {
  return JinjaValue(Undefined{std::make_shared<const std::string>(std::move(what))});
}

JinjaValue JinjaValue::list(Items items) { return jinja_list(JinjaList::Form::list, std::move(items)); }
JinjaValue JinjaValue::tuple(Items items) { return jinja_list(JinjaList::Form::tuple, std::move(items)); }
JinjaValue JinjaValue::dict(const Pairs& pairs) { return std::make_shared<const JinjaDict>(pairs); }

JinjaValue jinja_list(JinjaList::Form form, JinjaValue::Items items) {
  return std::make_shared<const JinjaList>(form, std::move(items));
}

const char* JinjaValue::type() const {
  constexpr const char* kForms[] = {"list", "tuple", "range", "dictionary view", "generator"};
  constexpr const char* kTypes[] = {"Undefined", "None", "bool", "int",       "float",
                                    "str",       "",     "dict", "namespace", "function"};
  return is(JinjaKind::list) ? kForms[static_cast<size_t>(list().form)] : kTypes[data_.index()];
}

void JinjaValue::fail_kind() const {
  check_defined();
  fail(str("a value of type ", type(), " cannot be used here"));
}

void JinjaValue::check_defined() const {
  if (const auto* value = std::get_if<Undefined>(&data_)) fail(*value->what);
}

int64_t JinjaValue::integer() const {
  return is(JinjaKind::boolean) ? static_cast<int64_t>(boolean()) : as<int64_t>();
}

double JinjaValue::number() const {
  return is(JinjaKind::number) ? as<double>() : static_cast<double>(integer());
}

bool JinjaValue::is_numeric() const { return is_integral(*this) || is(JinjaKind::number); }

bool JinjaValue::truth() const {
  switch (kind()) {
    case JinjaKind::undefined:
    case JinjaKind::none:
      return false;
    case JinjaKind::boolean:
    case JinjaKind::integer:
    case JinjaKind::number:
      return number() != 0;
    case JinjaKind::text:
      return !text().empty();
    case JinjaKind::list:
      return list().form == JinjaList::Form::generator || !list().values.empty();
    case JinjaKind::dict:
      return !dict().pairs.empty();
    default:
      return true;
  }
}

JinjaValue::Items JinjaValue::items() const {
  Items found;
  if (is(JinjaKind::undefined)) return found;
  if (is(JinjaKind::dict)) {
    for (const auto& pair : dict().pairs) found.push_back(pair.first);
  } else if (is(JinjaKind::text)) {
    const std::string& all = bytes();
    for (size_t at = 0, end = 0; at < all.size(); at = end) {
      end = after_code_point(all, at);
      add_item(found, text().slice(at, end));
    }
  } else {
    check(is(JinjaKind::list), "a value of type ", type(), " cannot be iterated over");
    if (list().consumed) return found;
    list().consumed = list().form == JinjaList::Form::generator;
    return list().values;
  }
  return found;
}

int64_t JinjaValue::length() const {
  if (is(JinjaKind::undefined)) return 0;
  if (is(JinjaKind::text)) return static_cast<int64_t>(count_code_points(bytes()));
  if (is(JinjaKind::dict)) return std::ssize(dict().pairs);
  check(is(JinjaKind::list) && list().form != JinjaList::Form::generator, "a value of type ", type(),
        " has no length");
  return std::ssize(list().values);
}

size_t JinjaValue::depth() const {
  return is(JinjaKind::list) ? list().extent.depth : is(JinjaKind::dict) ? dict().extent.depth : 0;
}

size_t JinjaValue::weight() const {
  if (is(JinjaKind::text)) return 1 + text().size() / 64;
  return is(JinjaKind::list) ? list().extent.weight : is(JinjaKind::dict) ? dict().extent.weight : 1;
}

void add_item(JinjaValue::Items& items, JinjaValue value) {
  check(items.size() < JinjaExtent::kMostWeight, "a list has more than ", JinjaExtent::kMostWeight, " items");
  items.push_back(std::move(value));
}

void JinjaExtent::add(const JinjaValue& value) {
  depth = std::max(depth, value.depth() + 1);
  weight += value.weight();
  check(depth <= kMostDepth, "a value is nested more than ", kMostDepth, " levels deep");
  check(weight <= kMostWeight, "a value contains more than ", kMostWeight, " words");
}

JinjaList::JinjaList(Form list_form, std::vector<JinjaValue> all) : form(list_form), values(std::move(all)) {
  for (const JinjaValue& value : values) extent.add(value);
}

JinjaDict::JinjaDict(const JinjaValue::Pairs& all) {
  for (const auto& [key, value] : all) {
    extent.add(key);
    extent.add(value);
    const auto [found, is_new] = index_.try_emplace(jinja_key(key), pairs.size());
    if (is_new)
      pairs.emplace_back(key, value);
    else
      pairs[found->second].second = value;
  }
}

const JinjaValue* JinjaDict::find(std::string_view key) const {
  const auto found = index_.find(str('s', key));
  return found == index_.end() ? nullptr : &pairs[found->second].second;
}

const JinjaValue* JinjaDict::find(const JinjaValue& key) const {
  const auto found = index_.find(jinja_key(key));
  return found == index_.end() ? nullptr : &pairs[found->second].second;
}

std::string jinja_key(const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaKind::undefined:
      return "u";
    case JinjaKind::none:
      return "n";
    case JinjaKind::boolean:
    case JinjaKind::integer:
      return str('i', value.integer());
    case JinjaKind::number:
      return number_key(value.number());
    case JinjaKind::text:
      return 's' + value.bytes();
    default:
      break;
  }
  const bool is_tuple = value.is(JinjaKind::list) && value.list().form == JinjaList::Form::tuple;
  check(is_tuple, "a value of type ", value.type(), " cannot be hashed");
  std::string key = "t";
  for (const JinjaValue& item : value.list().values) {
    const std::string part = jinja_key(item);
    key += str(part.size(), ':', part);
  }
  return key;
}

bool jinja_equal(const JinjaValue& a, const JinjaValue& b) {
  if (is_integral(a) && is_integral(b)) return a.integer() == b.integer();
  if (a.is_numeric() && b.is_numeric()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case JinjaKind::text:
      return a.bytes() == b.bytes();
    case JinjaKind::list:
      return &a.list() == &b.list() ||
             (a.list().form == b.list().form && equal_items(a.list().values, b.list().values));
    case JinjaKind::dict:
      return &a.dict() == &b.dict() || equal_dicts(a.dict(), b.dict());
    case JinjaKind::name_space:
      return &a.name_space() == &b.name_space();
    case JinjaKind::function:
      return &a.function() == &b.function();
    default:
      return true;  // None, undefined
  }
}

int jinja_order(const JinjaValue& a, const JinjaValue& b) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (is_integral(a) && is_integral(b)) return order(a.integer(), b.integer());
  if (a.is_numeric() && b.is_numeric()) return order(a.number(), b.number());
  if (a.is(JinjaKind::text) && b.is(JinjaKind::text)) return order(a.bytes(), b.bytes());
  a.check_defined();
  b.check_defined();
  check(a.is(JinjaKind::list) && b.is(JinjaKind::list), "values of type ", a.type(), " and ", b.type(),
        " have no order");
  const JinjaValue::Items &x = a.list().values, &y = b.list().values;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!jinja_equal(x[i], y[i])) return jinja_order(x[i], y[i]);
  return order(x.size(), y.size());
}

}  // namespace flatshard
