#pragma once
// The evaluation of expressions, and the state that it shares with the execution of statements: scopes,
// limits and the text printed so far. Internal to the runtime.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "runtime/check.h"
#include "text/jinja/jinja_arguments.h"
#include "text/jinja/jinja_runtime.h"

namespace flatshard {

// The loop that encloses a statement.
struct JinjaLoop {
  const JinjaValue::Items& items;
  size_t at;

  JinjaValue member(const std::string& name) const;
};

// The variables of a statement's body.
struct JinjaScope {
  std::shared_ptr<JinjaScope> parent;
  std::map<std::string, JinjaValue> values;
  const JinjaLoop* loop = nullptr;  // set if this is the scope of a loop's body
};

class JinjaEvaluator {
 protected:
  enum class Flow { next, broken, continued };
  using Kind = JinjaNodeKind;
  using Scope = std::shared_ptr<JinjaScope>;

  JinjaEvaluator(const std::string& name, const JinjaSettings& settings)
      : name_(name), settings_(settings), scope_(std::make_shared<JinjaScope>()) {}
  virtual ~JinjaEvaluator() = default;

  virtual Flow execute(const JinjaNode& node) = 0;

  // Counts a node that is executed, and bounds the recursion.
  class Step {
   public:
    Step(JinjaEvaluator& runtime, const JinjaNode& node) : runtime_(runtime) {
      runtime.line_ = node.line;
      runtime.charge(1);
      const int most = runtime.settings_.limits.depth;
      check(runtime.depth_ < most, "statements and macros are nested more than ", most, " levels deep");
      ++runtime.depth_;
    }
    ~Step() { --runtime_.depth_; }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    JinjaEvaluator& runtime_;
  };

  void charge(size_t steps) {
    steps_ += static_cast<int64_t>(steps);
    check(steps_ <= settings_.limits.steps, "the template needs more than ", settings_.limits.steps,
          " steps");
  }
  // Charges for a value that the operation at the node reads.
  const JinjaValue& charged(const JinjaNode& node, const JinjaValue& value) {
    line_ = node.line;
    charge(value.weight());
    return value;
  }

  // Charges for a value that the operation makes.
  JinjaValue produced(JinjaValue value) {
    charge(value.weight());
    return value;
  }

  // Runs the work in a new scope inside `parent`.
  template <class Work>
  auto in_scope(const Scope& parent, Work&& work) {
    struct Restore {
      JinjaEvaluator& runtime;
      Scope before;
      ~Restore() { runtime.scope_ = std::move(before); }
    } const restore{*this, scope_};
    scope_ = std::make_shared<JinjaScope>(JinjaScope{parent, {}, nullptr});
    return work();
  }

  // Returns the text that statements print in a new scope inside `parent`.
  template <class Prepare>
  SourcedText captured(const Scope& parent, const JinjaNode& body, Prepare&& prepare) {
    SourcedText outer = std::exchange(out_, {});
    in_scope(parent, [&] {
      prepare();
      return execute(body);
    });
    return std::exchange(out_, std::move(outer));
  }
  SourcedText captured(const JinjaNode& body) {
    return captured(scope_, body, [] {});
  }

  JinjaValue evaluate(const JinjaNode& node);
  JinjaValue::Items evaluate_all(const JinjaNode& node);
  // Returns null if the name has no value.
  const JinjaValue* find_variable(const std::string& name) const;
  JinjaValue variable(const std::string& name) const;
  // Returns the innermost loop if the node is the variable `loop`.
  const JinjaLoop* loop_of(const JinjaNode& node) const;
  JinjaValue item(const JinjaNode& node);
  JinjaValue binary(const JinjaNode& node);
  bool compare(const JinjaNode& node);
  static bool holds(const std::string& op, const JinjaValue& left, const JinjaValue& right);
  // Applies the filters of a node to its own subject, or, in the tag of a block, to `text`.
  JinjaValue filtered(const JinjaNode* node, SourcedText text);
  JinjaArguments arguments(const JinjaNode& node, size_t first);
  // `block` is the {% call %} block that the function may use as caller(), or null.
  JinjaValue call(const JinjaNode& node, const JinjaNode* block);
  JinjaValue function(const JinjaNode& node);
  JinjaValue new_namespace(const JinjaArguments& given);
  JinjaValue call_macro(const JinjaFunction& function, const JinjaArguments& given);
  void bind_parameters(const JinjaFunction& function, const JinjaNode& signature,
                       const JinjaArguments& given);

  const std::string& name_;
  const JinjaSettings& settings_;
  Scope scope_;
  SourcedText out_;
  std::deque<JinjaNamespace> namespaces_;
  int line_ = 1, depth_ = 0;
  int64_t steps_ = 0;
};

}  // namespace flatshard
