// Gradients of float64 formulas, the judges of every backward pass.
//
// A formula is written once, templated on the scalar: double gives values, complex<double> gives exact derivatives as
// the imaginary part over the step (Squire & Trapp 1998). It must be analytic: fix every choice (top-k, max) first.
#pragma once

#include <complex>
#include <functional>
#include <vector>

namespace isobath::reference {

using Complex = std::complex<double>;
template <class T>
using Vec = std::vector<T>;

// d f / d v[i] for every i; f: Vec<Complex> -> Complex.
template <class F>
Vec<double> complex_step(const Vec<double>& v, F f) {
  constexpr double kStep = 1e-30;
  Vec<Complex> z(v.begin(), v.end());
  Vec<double> gradient(v.size());
  for (size_t i = 0; i < v.size(); i++) {
    z[i] += Complex(0, kStep);
    gradient[i] = Complex(f(z)).imag() / kStep;
    z[i] = v[i];
  }
  return gradient;
}

// The same by central differences, for formulas too long for complex numbers; f: Vec<double> -> double.
template <class F>
Vec<double> central_difference(Vec<double> v, F f, double step = 1e-6) {
  Vec<double> gradient(v.size());
  for (size_t i = 0; i < v.size(); i++) {
    const double keep = v[i];
    v[i] = keep + step;
    const double up = f(v);
    v[i] = keep - step;
    const double down = f(v);
    v[i] = keep;
    gradient[i] = (up - down) / (2 * step);
  }
  return gradient;
}

}  // namespace isobath::reference
