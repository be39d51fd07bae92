package architecture

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// metric is one metric as the source defines it.
type metric struct {
	name, help string
	kind       dto.MetricType
	place      string
}

// optionKinds are the composite literals that define metrics.
var optionKinds = map[string]dto.MetricType{
	"CounterOpts": dto.MetricType_COUNTER, "GaugeOpts": dto.MetricType_GAUGE, "HistogramOpts": dto.MetricType_HISTOGRAM, "SummaryOpts": dto.MetricType_SUMMARY,
}

// metricName is ours: holdfast, the package, what is counted.
var metricName = regexp.MustCompile(`^holdfast_([a-z0-9]+)(_[a-z0-9]+)+$`)

// nameMetrics finds metrics whose name or help a Prometheus user would stumble over (promlint), that do not begin with
// holdfast and their package, or whose name cannot be told from the source.
func nameMetrics(sources []source) []string {
	var findings []string
	for _, s := range sources {
		if s.test || s.generated {
			continue
		}
		metrics, unknown := metricsOf(s)
		findings = append(findings, unknown...)
		for _, m := range metrics {
			area := path.Base(s.folder())
			if match := metricName.FindStringSubmatch(m.name); match == nil || match[1] != area {
				findings = append(findings, fmt.Sprintf("%s: metric %s: its name begins with holdfast_%s_", m.place, m.name, area))
			}
			family := &dto.MetricFamily{Name: &m.name, Type: &m.kind, Metric: []*dto.Metric{{}}}
			if m.help != "" {
				family.Help = &m.help
			}
			problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
			if err != nil {
				findings = append(findings, fmt.Sprintf("%s: metric %s: %v", m.place, m.name, err))
			}
			for _, problem := range problems {
				findings = append(findings, fmt.Sprintf("%s: metric %s: %s", m.place, m.name, problem.Text))
			}
		}
	}
	return findings
}

// metricsOf reads the metrics that a file defines. Names may be put together from a literal and a parameter of the function
// around it, for the file's own short hands: counter := func(name, help string) ...
func metricsOf(s source) (metrics []metric, unknown []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		name, help, kind := definition(s, n)
		if name == nil {
			return true
		}
		if text, ok := constant(name); ok {
			words, _ := constant(help)
			metrics = append(metrics, metric{text, words, kindOf(kind, text), s.at(n)})
			return true
		}
		made := throughShorthand(s, n, name, help, kind)
		if len(made) == 0 {
			unknown = append(unknown, s.at(n)+": the metric's name cannot be told from the source: write it out")
		}
		metrics = append(metrics, made...)
		return true
	})
	return metrics, unknown
}

// definition returns the expressions for the name and the help of the metric that a node defines; nil if it defines none.
func definition(s source, n ast.Node) (name, help ast.Expr, kind dto.MetricType) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		selector, ok := n.Type.(*ast.SelectorExpr)
		if !ok || !fromPrometheus(s, selector) {
			return nil, nil, 0
		}
		kind, ok := optionKinds[selector.Sel.Name]
		if !ok {
			return nil, nil, 0
		}
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				switch key, _ := pair.Key.(*ast.Ident); key.Name {
				case "Name":
					name = pair.Value
				case "Help":
					help = pair.Value
				}
			}
		}
		return name, help, kind
	case *ast.CallExpr:
		if selector, ok := n.Fun.(*ast.SelectorExpr); ok && fromPrometheus(s, selector) && selector.Sel.Name == "NewDesc" {
			return n.Args[0], n.Args[1], dto.MetricType_UNTYPED
		}
	}
	return nil, nil, 0
}

func fromPrometheus(s source, selector *ast.SelectorExpr) bool {
	name, ok := selector.X.(*ast.Ident)
	return ok && s.importedAs(name.Name) == "github.com/prometheus/client_golang/prometheus"
}

// kindOf is the kind of a metric that is known by its description only: a name that says total is a counter's.
func kindOf(kind dto.MetricType, name string) dto.MetricType {
	if kind != dto.MetricType_UNTYPED {
		return kind
	}
	if strings.HasSuffix(name, "_total") {
		return dto.MetricType_COUNTER
	}
	return dto.MetricType_GAUGE
}

// constant evaluates a literal or a sum of literals.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, ok1 := constant(e.X)
		right, ok2 := constant(e.Y)
		return left + right, ok1 && ok2 && e.Op == token.ADD
	}
	return "", false
}

// throughShorthand finds the calls of the function in whose body n is, and puts the names together from them.
func throughShorthand(s source, n ast.Node, name, help ast.Expr, kind dto.MetricType) []metric {
	sum, ok := name.(*ast.BinaryExpr)
	if !ok {
		sum = &ast.BinaryExpr{X: &ast.BasicLit{Value: `""`}, Y: name}
	}
	prefix, ok := constant(sum.X)
	parameter, isName := sum.Y.(*ast.Ident)
	shorthand, function := around(s, n)
	if !ok || !isName || function == nil {
		return nil
	}
	nameAt, helpAt := position(function, parameter.Name), -1
	if words, ok := help.(*ast.Ident); ok {
		helpAt = position(function, words.Name)
	}
	var metrics []metric
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || nameAt < 0 || len(call.Args) <= max(nameAt, helpAt) {
			return true
		}
		if called, ok := call.Fun.(*ast.Ident); !ok || called.Name != shorthand {
			return true
		}
		rest, ok := constant(call.Args[nameAt])
		if !ok {
			return true
		}
		m := metric{name: prefix + rest, kind: kindOf(kind, prefix+rest), place: s.at(call)}
		if helpAt >= 0 {
			m.help, _ = constant(call.Args[helpAt])
		}
		metrics = append(metrics, m)
		return true
	})
	return metrics
}

// around returns the innermost function with a name that n is in: a declaration, or a literal that is assigned to a variable.
func around(s source, n ast.Node) (name string, function *ast.FuncType) {
	ast.Inspect(s.file, func(outer ast.Node) bool {
		if outer == nil || outer.Pos() > n.Pos() || outer.End() < n.End() {
			return outer != nil && outer.Pos() <= n.Pos() && outer.End() >= n.End()
		}
		switch outer := outer.(type) {
		case *ast.FuncDecl:
			name, function = outer.Name.Name, outer.Type
		case *ast.AssignStmt:
			for i, value := range outer.Rhs {
				literal, ok := value.(*ast.FuncLit)
				if variable, named := outer.Lhs[min(i, len(outer.Lhs)-1)].(*ast.Ident); ok && named && literal.Pos() <= n.Pos() && n.End() <= literal.End() {
					name, function = variable.Name, literal.Type
				}
			}
		}
		return true
	})
	return name, function
}

// position is the place of a parameter in a function's list; -1 if it is none.
func position(function *ast.FuncType, parameter string) int {
	i := 0
	for _, field := range function.Params.List {
		for _, name := range field.Names {
			if name.Name == parameter {
				return i
			}
			i++
		}
	}
	return -1
}

func TestMetricNames(t *testing.T) {
	hold(t, nameMetrics)
	count := 0
	for _, s := range tree(t) {
		if !s.test {
			metrics, _ := metricsOf(s)
			count += len(metrics)
		}
	}
	if count < 40 {
		t.Errorf("only %d metrics were found", count)
	}
}

func TestMetricNamesCanBreak(t *testing.T) {
	breaks(t, nameMetrics, map[string]string{
		"internal/dns/a.go": `package dns
import "github.com/prometheus/client_golang/prometheus"
func f(unknown string) {
	counter := func(name, help string) { prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_dns_" + name, Help: help}) }
	counter("queries_total", "Queries.")
	counter("queries", "Queries.")
	counter("answers_total", "")
	prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_dns_open", Help: "Open."})
	prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_dns_wait_milliseconds", Help: "Wait."})
	prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_load_open", Help: "Open."})
	prometheus.NewDesc("dns_nodes", "Nodes.", nil, nil)
}
func g(name string) prometheus.Opts {
	return prometheus.Opts(prometheus.GaugeOpts{Name: name, Help: "Nobody calls this."})
}`,
	},
		"internal/dns/a.go:14: the metric's name cannot be told",
		`internal/dns/a.go:6: metric holdfast_dns_queries: counter metrics should have "_total" suffix`,
		"internal/dns/a.go:7: metric holdfast_dns_answers_total: no help text",
		"internal/dns/a.go:9: metric holdfast_dns_wait_milliseconds: use base unit",
		"internal/dns/a.go:10: metric holdfast_load_open: its name begins with holdfast_dns_",
		"internal/dns/a.go:11: metric dns_nodes: its name begins with holdfast_dns_")
}
