#include "text/jinja/jinja_operations.h"

#include <algorithm>
#include <cmath>

#include "runtime/check.h"

namespace flatshard {
namespace {

JinjaValue no_member(const JinjaValue& object, const std::string& name) {
  return JinjaValue::undefined(str("a value of type ", object.type(), " has no member '", name, "'"));
}

// Returns the result of an operation that returns whether it overflows.
template <class Operation>
int64_t checked(Operation&& operation) {
  int64_t result = 0;
  check(!operation(&result), "an integer does not fit in 64 bits");
  return result;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (; exponent > 0 && base != 1 && base != 0 && base != -1; --exponent)
    result = checked([&](int64_t* product) { return __builtin_mul_overflow(result, base, product); });
  if (exponent > 0) result = base == -1 && exponent % 2 == 0 ? 1 : base;
  return result;
}

void check_divisor(bool is_zero) { check(!is_zero, "division by zero"); }

JinjaValue integer_binary(const std::string& op, int64_t a, int64_t b) {
  if (op == "+") return checked([&](int64_t* result) { return __builtin_add_overflow(a, b, result); });
  if (op == "-") return checked([&](int64_t* result) { return __builtin_sub_overflow(a, b, result); });
  if (op == "*") return checked([&](int64_t* result) { return __builtin_mul_overflow(a, b, result); });
  if (op == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    return integer_power(a, b);
  }
  check_divisor(b == 0);
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == "%" ? JinjaValue(int64_t{0}) : integer_binary("-", 0, a);
  const int64_t rest = a % b;
  const bool differs = rest != 0 && (rest < 0) != (b < 0);  // Python rounds down
  return op == "%" ? differs ? rest + b : rest : a / b - (differs ? 1 : 0);
}

JinjaValue float_binary(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  check_divisor(b == 0);
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

JinjaValue repeated(const JinjaValue& value, int64_t times) {
  if (value.is(JinjaKind::text)) {
    const size_t most = SourcedText::kMostBytes / std::max<size_t>(1, value.text().size());
    check(times <= 0 || static_cast<size_t>(times) <= most, "a text has more than ", SourcedText::kMostBytes,
          " bytes");
    SourcedText text, block = value.text();  // the block doubles: one append per bit of `times`
    for (int64_t rest = value.text().empty() ? 0 : times; rest > 0; rest /= 2) {
      if (rest % 2 != 0) text.append(block);
      if (rest > 1) block.append(SourcedText(block));
    }
    return text;
  }
  JinjaValue::Items items;
  const JinjaValue::Items& once = value.list().values;
  check(
      times <= 0 || static_cast<size_t>(times) <= JinjaExtent::kMostWeight / std::max<size_t>(1, once.size()),
      "a list contains more than ", JinjaExtent::kMostWeight, " words");
  for (int64_t i = 0; i < times; ++i) items.insert(items.end(), once.begin(), once.end());
  return jinja_list(value.list().form, std::move(items));
}

SourcedText escaped(const SourcedText& text) {
  return text.mapped([](std::string& out, char32_t c) {
    constexpr std::pair<char32_t, const char*> kEscapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    for (const auto& [character, escape] : kEscapes)
      if (c == character) {
        out += escape;
        return;
      }
    append_utf8(out, c);
  });
}

SourcedText added(const SourcedText& a, const SourcedText& b) {
  SourcedText text = b.is_markup() && !a.is_markup() ? escaped(a) : a;
  text.append(a.is_markup() && !b.is_markup() ? escaped(b) : b);
  if (a.is_markup() || b.is_markup()) text.mark_markup();
  return text;
}

// The positions of the items in Python's slice of `size` items.
std::vector<size_t> sliced(int64_t size, std::optional<int64_t> begin, std::optional<int64_t> end,
                           std::optional<int64_t> step_given) {
  const int64_t step = step_given.value_or(1);
  check(step != 0, "a slice has the step 0");
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto position = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? std::max(*at, -size - 1) + size : *at, lowest, highest);
  };
  const int64_t first = position(begin, step > 0 ? 0 : size - 1), last = position(end, step > 0 ? size : -1);
  std::vector<size_t> found;
  const int64_t distance = step > 0 ? last - first : first - last;
  if (distance <= 0) return found;
  const auto stride = static_cast<uint64_t>(step > 0 ? step : -(step + 1)) + (step > 0 ? 0 : 1);
  const auto count = (static_cast<uint64_t>(distance) - 1) / stride + 1;
  for (uint64_t i = 0; i < count; ++i)
    found.push_back(static_cast<size_t>(first) + static_cast<size_t>(i) * static_cast<size_t>(step));
  return found;
}

// The starts of the code points in a text, and the end of the last one.
std::vector<size_t> code_point_bounds(std::string_view text) {
  std::vector<size_t> bounds{0};
  while (bounds.back() < text.size()) bounds.push_back(after_code_point(text, bounds.back()));
  return bounds;
}

const JinjaValue::Items& indexed_items(const JinjaValue& object) {
  const JinjaList& list = object.list();
  check(list.form != JinjaList::Form::view && list.form != JinjaList::Form::generator, "a value of type ",
        object.type(), " has no order; the filter list makes one that has");
  return list.values;
}

}  // namespace

JinjaValue jinja_attribute(const JinjaValue& object, const std::string& name) {
  object.check_defined();
  if (object.is(JinjaKind::name_space)) {
    const auto& values = object.name_space().values;
    const auto found = values.find(name);
    return found == values.end() ? no_member(object, name) : found->second;
  }
  if (has_jinja_method(object, name))
    return std::make_shared<const JinjaFunction>(JinjaFunction{str(object.type(), '.', name), nullptr, {}});
  const JinjaValue* member = object.is(JinjaKind::dict) ? object.dict().find(name) : nullptr;
  return member == nullptr ? no_member(object, name) : *member;
}

JinjaValue jinja_item(const JinjaValue& object, const JinjaValue& index) {
  object.check_defined();
  const bool is_integer = index.is(JinjaKind::integer) || index.is(JinjaKind::boolean);
  if (object.is(JinjaKind::dict)) {
    const bool can_be_key = !index.is(JinjaKind::list) && !index.is(JinjaKind::dict) &&
                            !index.is(JinjaKind::name_space) && !index.is(JinjaKind::function);
    if (const JinjaValue* member = can_be_key ? object.dict().find(index) : nullptr) return *member;
  } else if (object.is(JinjaKind::list) && is_integer) {
    const JinjaValue::Items& items = indexed_items(object);
    const int64_t size = std::ssize(items), at = index.integer() + (index.integer() < 0 ? size : 0);
    if (at >= 0 && at < size) return items[static_cast<size_t>(at)];
  } else if (object.is(JinjaKind::text) && is_integer) {
    const std::vector<size_t> bounds = code_point_bounds(object.bytes());
    const int64_t size = std::ssize(bounds) - 1, at = index.integer() + (index.integer() < 0 ? size : 0);
    if (at >= 0 && at < size)
      return object.text().slice(bounds[static_cast<size_t>(at)], bounds[static_cast<size_t>(at) + 1]);
  }
  if (index.is(JinjaKind::text)) return jinja_attribute(object, index.bytes());
  return JinjaValue::undefined(str("a value of type ", object.type(), " has no such item"));
}

JinjaValue jinja_slice(const JinjaValue& object, std::optional<int64_t> begin, std::optional<int64_t> end,
                       std::optional<int64_t> step) {
  if (object.is(JinjaKind::text)) {
    const std::vector<size_t> bounds = code_point_bounds(object.bytes());
    const std::vector<size_t> chosen = sliced(std::ssize(bounds) - 1, begin, end, step);
    if (chosen.empty()) return SourcedText();
    if (step.value_or(1) == 1) return object.text().slice(bounds[chosen.front()], bounds[chosen.back() + 1]);
    SourcedText text;
    for (const size_t at : chosen) text.append(object.text(), bounds[at], bounds[at + 1]);
    return text;
  }
  object.check_defined();
  check(object.is(JinjaKind::list), "a value of type ", object.type(), " has no slices");
  const JinjaValue::Items& items = indexed_items(object);
  JinjaValue::Items part;
  for (const size_t at : sliced(std::ssize(items), begin, end, step)) part.push_back(items[at]);
  return jinja_list(object.list().form, std::move(part));
}

JinjaValue jinja_binary(const std::string& op, const JinjaValue& a, const JinjaValue& b) {
  a.check_defined();
  b.check_defined();
  if (a.is_numeric() && b.is_numeric()) {
    if (a.is(JinjaKind::number) || b.is(JinjaKind::number)) return float_binary(op, a.number(), b.number());
    return integer_binary(op, a.integer(), b.integer());
  }
  const auto is_sequence = [](const JinjaValue& value) {
    return value.is(JinjaKind::text) ||
           (value.is(JinjaKind::list) && value.list().form <= JinjaList::Form::tuple);
  };
  if (op == "*" && is_sequence(a) && b.is(JinjaKind::integer)) return repeated(a, b.integer());
  if (op == "*" && is_sequence(b) && a.is(JinjaKind::integer)) return repeated(b, a.integer());
  if (op == "+" && is_sequence(a) && a.kind() == b.kind()) {
    if (a.is(JinjaKind::text)) return added(a.text(), b.text());
    if (a.list().form == b.list().form) {
      JinjaValue::Items items = a.list().values;
      items.insert(items.end(), b.list().values.begin(), b.list().values.end());
      return jinja_list(a.list().form, std::move(items));
    }
  }
  fail(str("the operator ", op, " is not supported between values of type ", a.type(), " and ", b.type()));
}

bool jinja_contains(const JinjaValue& container, const JinjaValue& value) {
  if (container.is(JinjaKind::text)) {
    value.check_defined();
    check(value.is(JinjaKind::text), "a value of type ", value.type(), " cannot be looked for in a str");
    return find_part(container.bytes(), value.bytes()) != std::string::npos;
  }
  if (container.is(JinjaKind::dict)) return container.dict().find(value) != nullptr;
  const JinjaValue::Items items = container.items();
  return std::any_of(items.begin(), items.end(),
                     [&](const JinjaValue& item) { return jinja_equal(item, value); });
}

bool jinja_compare(const std::string& op, const JinjaValue& left, const JinjaValue& right) {
  if (op == "==") return jinja_equal(left, right);
  if (op == "!=") return !jinja_equal(left, right);
  if (op == "in") return jinja_contains(right, left);
  if (op == "not in") return !jinja_contains(right, left);
  const int order = jinja_order(left, right);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

}  // namespace flatshard
