#include "text/jinja/jinja_runtime.h"

#include <algorithm>

#include "runtime/utf8.h"
#include "text/jinja/jinja_evaluator.h"
#include "text/jinja/jinja_globals.h"
#include "text/jinja/jinja_print.h"

namespace flatshard {
namespace {

// Shortens a message, into which a template may put a text of any length.
std::string shortened(const std::string& message) {
  constexpr size_t kMostBytes = 2000;
  if (message.size() <= kMostBytes) return message;
  const size_t end = valid_utf8_prefix(std::string_view(message).substr(0, kMostBytes));
  return str(message.substr(0, end), "... (", message.size(), " bytes)");
}

class Runtime : private JinjaEvaluator {
 public:
  Runtime(const std::string& name, const std::map<std::string, JinjaValue>& variables,
          const JinjaSettings& settings)
      : JinjaEvaluator(name, settings) {
    for (const std::string& global : jinja_global_names())
      scope_->values[global] = std::make_shared<const JinjaFunction>(JinjaFunction{global, nullptr, {}});
    for (const auto& [variable, value] : variables) scope_->values[variable] = value;
  }

  SourcedText run(const JinjaNode& body) {
    try {
      check(execute(body) == Flow::next, "{% break %} and {% continue %} must be inside a loop");
    } catch (const Error& error) {
      throw Error(str(name_, ':', line_, ": ", shortened(error.what())), error.where);
    }
    return std::move(out_);
  }

 private:
  Flow execute(const JinjaNode& node) override {
    const Step step(*this, node);
    switch (node.kind) {
      case Kind::body:
        for (const auto& statement : node.children)
          if (const Flow flow = execute(*statement); flow != Flow::next) return flow;
        return Flow::next;
      case Kind::data:
        out_.append(charged(node, node.value).text());
        return Flow::next;
      case Kind::output:
        out_.append(jinja_str(charged(node, evaluate(node.child(0)))));
        return Flow::next;
      case Kind::if_else:
        return execute_if(node);
      case Kind::for_in:
        return execute_for(node);
      case Kind::set:
        assign(node.child(0), evaluate(node.child(1)));
        return Flow::next;
      case Kind::set_block:
        assign(node.child(0), filtered(node.optional_child(1), captured(node.child(2))));
        return Flow::next;
      case Kind::macro:
        scope_->values[node.name] = function(node);
        return Flow::next;
      case Kind::call_block:
        out_.append(jinja_str(call(node.child(1), &node)));
        return Flow::next;
      case Kind::filter_block:
        out_.append(jinja_str(filtered(&node.child(0), captured(node.child(1)))));
        return Flow::next;
      case Kind::generation: {
        SourcedText text = captured(node.child(0));
        text.mark_generated();
        out_.append(text);
        return Flow::next;
      }
      case Kind::loop_break:
        return Flow::broken;
      case Kind::loop_continue:
        return Flow::continued;
      default:
        fail(str("the statement {% ", node.name, " %} is not supported"));
    }
  }

  Flow execute_if(const JinjaNode& node) {
    size_t i = 0;
    for (; i + 1 < node.children.size(); i += 2)
      if (evaluate(node.child(i)).truth()) return execute(node.child(i + 1));
    return i < node.children.size() ? execute(node.child(i)) : Flow::next;
  }

  Flow execute_for(const JinjaNode& node) {
    const JinjaValue iterable = evaluate(node.child(1));
    check(node.name.empty(), "a recursive loop is not supported");
    JinjaValue::Items items = charged(node, iterable).items();
    if (const JinjaNode* filter = node.optional_child(2)) {
      std::erase_if(items, [&](const JinjaValue& item) {
        return in_scope(scope_, [&] {
          assign(node.child(0), item);
          return !evaluate(*filter).truth();
        });
      });
    }
    for (JinjaLoop loop{items, 0}; loop.at < items.size(); ++loop.at) {
      const Flow flow = in_scope(scope_, [&] {
        scope_->loop = &loop;
        assign(node.child(0), items[loop.at]);
        return execute(node.child(3));
      });
      if (flow == Flow::broken) break;
    }
    if (const JinjaNode* otherwise = items.empty() ? node.optional_child(4) : nullptr)
      return in_scope(scope_, [&] { return execute(*otherwise); });
    return Flow::next;
  }

  void assign(const JinjaNode& target, const JinjaValue& value) {
    line_ = target.line;
    if (target.kind == Kind::name) {
      scope_->values[target.name] = value;
    } else if (target.kind == Kind::attribute) {
      const JinjaValue names = evaluate(target.child(0));
      check(names.is(JinjaKind::name_space), "a member of a value of type ", names.type(), " cannot be set");
      names.name_space().values[target.name] = value;
    } else {
      value.check_defined();
      const JinjaValue::Items items = charged(target, value).items();
      check(items.size() == target.children.size(), items.size(), " values cannot be unpacked into ",
            target.children.size(), " names");
      for (size_t i = 0; i < items.size(); ++i) assign(target.child(i), items[i]);
    }
  }
};

}  // namespace

SourcedText run_jinja(const JinjaNode& body, const std::string& name,
                      const std::map<std::string, JinjaValue>& variables, const JinjaSettings& settings) {
  return Runtime(name, variables, settings).run(body);
}

}  // namespace flatshard
