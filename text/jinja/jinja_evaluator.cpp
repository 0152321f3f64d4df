#include "text/jinja/jinja_evaluator.h"

#include <algorithm>
#include <optional>

#include "text/jinja/jinja_globals.h"
#include "text/jinja/jinja_operations.h"
#include "text/jinja/jinja_print.h"

namespace flatshard {

JinjaValue JinjaLoop::member(const std::string& name) const {
  const auto count = std::ssize(items), index = static_cast<int64_t>(at);
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return at == 0;
  if (name == "last") return at + 1 == items.size();
  if (name == "length") return int64_t{count};
  if (name == "previtem" && at > 0) return items[at - 1];
  if (name == "nextitem" && at + 1 < items.size()) return items[at + 1];
  if (name == "previtem" || name == "nextitem") return JinjaValue::undefined("loop has no " + name + " here");
  fail("loop." + name + " is not supported");
}

JinjaValue JinjaEvaluator::evaluate(const JinjaNode& node) {
  const Step step(*this, node);
  switch (node.kind) {
    case Kind::literal:
      return node.value;
    case Kind::name:
      return variable(node.name);
    case Kind::list:
      return JinjaValue::list(evaluate_all(node));
    case Kind::tuple:
      return JinjaValue::tuple(evaluate_all(node));
    case Kind::dict: {
      const JinjaValue::Items values = evaluate_all(node);
      JinjaValue::Pairs pairs;
      for (size_t i = 0; i < values.size(); i += 2) pairs.emplace_back(values[i], values[i + 1]);
      return JinjaValue::dict(pairs);
    }
    case Kind::attribute: {
      if (const JinjaLoop* loop = loop_of(node.child(0))) return loop->member(node.name);
      const JinjaValue object = evaluate(node.child(0));
      line_ = node.line;
      return jinja_attribute(object, node.name);
    }
    case Kind::item:
      return item(node);
    case Kind::call:
      return call(node, nullptr);
    case Kind::filter:
      return filtered(&node, {});
    case Kind::test: {
      const JinjaValue subject = evaluate(node.child(0));
      const JinjaArguments given = arguments(node, 1);
      charged(node, subject);
      return jinja_test(node.name, subject, given);
    }
    case Kind::unary: {
      const JinjaValue operand = evaluate(node.child(0));
      if (node.name == "not") return !operand.truth();
      if (node.name == "-" && operand.is(JinjaKind::number)) return -operand.number();
      return jinja_binary(node.name, int64_t{0}, operand);
    }
    case Kind::binary:
      return binary(node);
    case Kind::comparison:
      return compare(node);
    case Kind::concat: {
      SourcedText text;
      for (const auto& operand : node.children) text.append(jinja_str(charged(node, evaluate(*operand))));
      return text;
    }
    case Kind::conditional:
      if (evaluate(node.child(0)).truth()) return evaluate(node.child(1));
      if (const JinjaNode* otherwise = node.optional_child(2)) return evaluate(*otherwise);
      return JinjaValue::undefined("the condition is false and there is no else");
    default:
      fail("this expression is not supported here");
  }
}

JinjaValue::Items JinjaEvaluator::evaluate_all(const JinjaNode& node) {
  JinjaValue::Items values;
  for (const auto& child : node.children) values.push_back(evaluate(*child));
  return values;
}

const JinjaValue* JinjaEvaluator::find_variable(const std::string& name) const {
  for (const JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    if (const auto found = scope->values.find(name); found != scope->values.end()) return &found->second;
  return nullptr;
}

JinjaValue JinjaEvaluator::variable(const std::string& name) const {
  const JinjaValue* value = find_variable(name);
  return value != nullptr ? *value : JinjaValue::undefined(str("'", name, "' is undefined"));
}

const JinjaLoop* JinjaEvaluator::loop_of(const JinjaNode& node) const {
  if (node.kind != Kind::name || node.name != "loop") return nullptr;
  for (const JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    if (scope->loop != nullptr || scope->values.contains("loop")) return scope->loop;
  return nullptr;
}

JinjaValue JinjaEvaluator::item(const JinjaNode& node) {
  const JinjaValue object = evaluate(node.child(0));
  const JinjaNode& index = node.child(1);
  if (index.kind != Kind::slice) {
    const JinjaValue at = evaluate(index);
    return jinja_item(object.is(JinjaKind::text) ? charged(node, object) : object, at);
  }
  const auto bound = [&](size_t i) -> std::optional<int64_t> {
    const JinjaNode* part = index.optional_child(i);
    const JinjaValue value = part == nullptr ? JinjaValue() : evaluate(*part);
    if (value.is(JinjaKind::none)) return {};
    return value.integer();
  };
  const auto begin = bound(0), end = bound(1), step = bound(2);
  return produced(jinja_slice(charged(node, object), begin, end, step));
}

JinjaValue JinjaEvaluator::binary(const JinjaNode& node) {
  const JinjaValue left = evaluate(node.child(0));
  if (node.name == "and") return left.truth() ? evaluate(node.child(1)) : left;
  if (node.name == "or") return left.truth() ? left : evaluate(node.child(1));
  const JinjaValue right = evaluate(node.child(1));
  return produced(jinja_binary(node.name, charged(node, left), charged(node, right)));
}

bool JinjaEvaluator::compare(const JinjaNode& node) {
  JinjaValue left = evaluate(node.child(0));
  for (size_t i = 1; i < node.children.size(); i += 2) {
    JinjaValue right = evaluate(node.child(i + 1));
    if (!holds(node.child(i).name, charged(node, left), charged(node, right))) return false;
    left = std::move(right);
  }
  return true;
}

bool JinjaEvaluator::holds(const std::string& op, const JinjaValue& left, const JinjaValue& right) {
  if (op == "==") return jinja_equal(left, right);
  if (op == "!=") return !jinja_equal(left, right);
  if (op == "in") return jinja_contains(right, left);
  if (op == "not in") return !jinja_contains(right, left);
  const int order = jinja_order(left, right);
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

JinjaValue JinjaEvaluator::filtered(const JinjaNode* node, SourcedText text) {
  if (node == nullptr) return text;
  const JinjaNode* inner = node->optional_child(0);
  const bool is_chain = inner == nullptr || inner->kind == Kind::filter;
  const JinjaValue subject = is_chain ? filtered(inner, std::move(text)) : evaluate(*inner);
  const JinjaArguments given = arguments(*node, 1);
  charged(*node, subject);
  return produced(jinja_filter(node->name, subject, given));
}

JinjaArguments JinjaEvaluator::arguments(const JinjaNode& node, size_t first) {
  JinjaArguments given;
  for (size_t i = first; i < node.children.size(); ++i) {
    const JinjaNode& child = node.child(i);
    const bool is_special =
        child.kind == Kind::keyword || child.kind == Kind::star || child.kind == Kind::double_star;
    const JinjaValue value = evaluate(is_special ? child.child(0) : child);
    charged(node, value);
    if (child.kind == Kind::keyword)
      given.named.emplace_back(SourcedText(child.name), value);
    else if (child.kind == Kind::double_star)
      for (const auto& [key, member] : value.dict().pairs) given.named.emplace_back(key.text(), member);
    else if (child.kind == Kind::star)
      for (const JinjaValue& item : value.items()) given.positional.push_back(item);
    else
      given.positional.push_back(value);
  }
  return given;
}

JinjaValue JinjaEvaluator::call(const JinjaNode& node, const JinjaNode* block) {
  const JinjaNode& callee = node.child(0);
  JinjaValue object;
  const bool is_member = callee.kind == Kind::attribute && loop_of(callee.child(0)) == nullptr;
  if (is_member) object = evaluate(callee.child(0));
  line_ = node.line;
  if (is_member && has_jinja_method(object, callee.name)) {
    const JinjaArguments given = arguments(node, 1);
    return produced(jinja_method(callee.name, charged(node, object), given));
  }
  const JinjaValue called = is_member ? jinja_attribute(object, callee.name) : evaluate(callee);
  JinjaArguments given = arguments(node, 1);
  if (block != nullptr) given.named.emplace_back(SourcedText("caller"), function(*block));
  line_ = node.line;
  called.check_defined();
  check(called.is(JinjaKind::function), "a value of type ", called.type(), " cannot be called");
  const JinjaFunction& function = called.function();
  if (function.macro != nullptr) return produced(call_macro(function, given));
  if (function.name == "namespace") return new_namespace(given);
  return produced(jinja_global(function.name, given, settings_.date));
}

JinjaValue JinjaEvaluator::function(const JinjaNode& node) {
  return std::make_shared<const JinjaFunction>(JinjaFunction{node.name, &node, scope_});
}

JinjaValue JinjaEvaluator::new_namespace(const JinjaArguments& given) {
  charge(100);  // a namespace is kept until the end
  JinjaNamespace& names = namespaces_.emplace_back();
  for (const JinjaValue& initial : given.positional)
    for (const auto& [key, value] : initial.dict().pairs) names.values[key.bytes()] = value;
  for (const auto& [name, value] : given.named) names.values[name.bytes()] = value;
  return &names;
}

JinjaValue JinjaEvaluator::call_macro(const JinjaFunction& function, const JinjaArguments& given) {
  const Scope scope = function.scope.lock();
  check(scope != nullptr, "the macro ", function.name, " is called outside the block that defines it");
  const JinjaNode& macro = *function.macro;
  return captured(scope, *macro.children.back(), [&] { bind_parameters(function, macro.child(0), given); });
}

void JinjaEvaluator::bind_parameters(const JinjaFunction& function, const JinjaNode& signature,
                                     const JinjaArguments& given) {
  const auto& parameters = signature.children;
  check(given.positional.size() <= parameters.size(), "the macro ", function.name, " takes at most ",
        parameters.size(), " arguments, is given ", given.positional.size());
  auto& values = scope_->values;
  for (size_t i = 0; i < given.positional.size(); ++i) values[parameters[i]->name] = given.positional[i];
  for (const auto& [sourced, value] : given.named) {
    const std::string& name = sourced.bytes();
    const bool is_known = name == "caller" || std::any_of(parameters.begin(), parameters.end(),
                                                          [&](const auto& p) { return p->name == name; });
    check(is_known, "the macro ", function.name, " has no parameter '", name, "'");
    check(values.emplace(name, value).second, "the macro ", function.name, " is given '", name, "' twice");
  }
  for (const auto& parameter : parameters) {
    if (values.contains(parameter->name)) continue;
    const JinjaNode* otherwise = parameter->optional_child(0);
    JinjaValue value =
        otherwise != nullptr
            ? evaluate(*otherwise)
            : JinjaValue::undefined(str("the parameter '", parameter->name, "' was not given"));
    values[parameter->name] = std::move(value);
  }
}

}  // namespace flatshard
