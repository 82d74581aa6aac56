// Reverse-mode derivatives of float64 formulas: a scalar that notes what was computed.
//
// Complex steps cost one evaluation per weight; a network has thousands. Var notes each operation and its partial
// derivatives on a tape, and one walk back over it gives the derivative with respect to everything. The formula stays
// the one template: double gives values, Complex gives one derivative, Var gives all (network_test.cpp compares them).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace isobath::reference {

class Tape {
 public:
  // An operation on the values numbered a and b (-1: a constant) with partial derivatives da and db.
  int64_t push(int64_t a, double da, int64_t b = -1, double db = 0) {
    nodes_.push_back({a, b, da, db});
    return int64_t(nodes_.size()) - 1;
  }
  void clear() { nodes_.clear(); }

  // d y / d v for every v on the tape; `y` is a number that push gave.
  std::vector<double> gradient(int64_t y) const {
    std::vector<double> adjoint(size_t(y) + 1);
    adjoint[size_t(y)] = 1;
    for (int64_t i = y; i >= 0; i--) {
      const double d = adjoint[size_t(i)];
      const Node& n = nodes_[size_t(i)];
      if (d == 0) continue;
      if (n.a >= 0) adjoint[size_t(n.a)] += d * n.da;
      if (n.b >= 0) adjoint[size_t(n.b)] += d * n.db;
    }
    return adjoint;
  }

 private:
  struct Node {
    int64_t a, b;
    double da, db;
  };
  std::vector<Node> nodes_;
};

inline Tape& tape() {
  thread_local Tape the_tape;
  return the_tape;
}

struct Var {
  double value = 0;
  int64_t id = -1;  // on the tape; -1: a constant
  Var() = default;
  Var(double v) : value(v) {}
  Var(double v, int64_t i) : value(v), id(i) {}
};

// A variable to differentiate by.
inline Var input(double value) { return {value, tape().push(-1, 0)}; }

inline Var operator+(Var a, Var b) { return {a.value + b.value, tape().push(a.id, 1, b.id, 1)}; }
inline Var operator-(Var a, Var b) { return {a.value - b.value, tape().push(a.id, 1, b.id, -1)}; }
inline Var operator-(Var a) { return {-a.value, tape().push(a.id, -1)}; }
inline Var operator*(Var a, Var b) { return {a.value * b.value, tape().push(a.id, b.value, b.id, a.value)}; }
inline Var operator/(Var a, Var b) {
  return {a.value / b.value, tape().push(a.id, 1 / b.value, b.id, -a.value / (b.value * b.value))};
}
inline Var& operator+=(Var& a, Var b) { return a = a + b; }
inline Var exp(Var a) {
  const double y = std::exp(a.value);
  return {y, tape().push(a.id, y)};
}
inline Var log(Var a) { return {std::log(a.value), tape().push(a.id, 1 / a.value)}; }
inline Var sqrt(Var a) {
  const double y = std::sqrt(a.value);
  return {y, tape().push(a.id, 0.5 / y)};
}

}  // namespace isobath::reference
