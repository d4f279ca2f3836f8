package otellock

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/latchkit/latchkit/core"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// These tests keep docs/observability true: every query is valid and asks for a metric and attributes that there are.

const docs = "../docs/observability"

func TestPrometheusRules(t *testing.T) {
	promtool(t, "check", "rules", filepath.Join(docs, "rules.yml"))
	promtool(t, "test", "rules", filepath.Join(docs, "rules_test.yml"))
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("LATCHKIT_REQUIRE_PROMTOOL") != "" {
			t.Fatal("there is no promtool: install Debian's package prometheus")
		}
		t.Skip("NOT TESTED: there is no promtool. Install Debian's package prometheus.")
	}
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

type dashboard struct {
	Panels []struct {
		Type, Title, Description string
		Targets                  []struct{ Expr string }
	}
	Templating struct{ List []struct{ Definition string } }
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDashboardQueriesAreValid(t *testing.T) {
	rules := "groups:\n- name: dashboard\n  rules:\n"
	n := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			rules += fmt.Sprintf("  - {record: 'panel%d', expr: %q}\n", n, expr)
			n++
		}
	}
	if n < 13 {
		t.Fatalf("%d queries", n)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

func TestPanelsAndAlertsAreExplained(t *testing.T) {
	page := read(t, "README.md")
	for _, p := range readDashboard(t).Panels {
		want := "**" + p.Title + ".**"
		if p.Type == "row" {
			want = "### " + p.Title
		} else if p.Description == "" {
			t.Errorf("panel %q has no description", p.Title)
		}
		if !strings.Contains(page, want) {
			t.Errorf("README.md has no %q", want)
		}
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, "rules.yml"), -1) {
		if !strings.Contains(page, "| "+alert[1]+" |") {
			t.Errorf("README.md has no row for %s", alert[1])
		}
		if !strings.Contains(read(t, "rules_test.yml"), "alertname: "+alert[1]) {
			t.Errorf("rules_test.yml has no test of %s", alert[1])
		}
	}
}

func TestQueriesAskForWhatThereIs(t *testing.T) {
	metrics, labels := exported(t)
	queries := read(t, "rules.yml")
	d := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries += "\n" + target.Expr
		}
	}
	for _, v := range d.Templating.List {
		queries += "\n" + v.Definition
	}
	asked := regexp.MustCompile(`\b(?:latchkit|error)_[a-z_]+\b`).FindAllString(queries, -1)
	for _, name := range asked {
		if !metrics[name] && !labels[name] {
			t.Errorf("%s: there is no such metric or attribute", name)
		}
	}
	for name := range metrics {
		if strings.HasSuffix(name, "_bucket") && !strings.Contains(queries, strings.TrimSuffix(name, "_bucket")) && name != "latchkit_renewal_slack_seconds_bucket" {
			t.Errorf("no query shows %s", name)
		}
	}
	values := regexp.MustCompile(`latchkit_(?:state|to)=\\?"(\w[\w-]*)\\?"`).FindAllStringSubmatch(queries, -1)
	for _, v := range values {
		if v[1] != "closed" && v[1] != "open" && v[1] != "half-open" {
			t.Errorf("there is no state %q", v[1])
		}
	}
}

// exported returns the metrics and attributes of a Tracer that has seen everything, under the names that the
// OpenTelemetry exporter for Prometheus gives them.
func exported(t *testing.T) (metrics, labels map[string]bool) {
	l := newLab(t)
	p := begin(l, context.Background(), order("k")).acquired(core.AcquireEnd{})
	l.Renewed(core.Renewal{Backend: "redis", Mark: p.mark, TTL: time.Second, Slack: time.Second})
	l.Breaker(core.BreakerEvent{Backend: "redis", To: "closed"})
	l.ClockOffset("redlock", "a", 0)
	p.release(context.Background(), nil)
	var all metricdata.ResourceMetrics
	if err := l.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	metrics, labels = make(map[string]bool), make(map[string]bool)
	underscored := func(name string) string { return strings.ReplaceAll(name, ".", "_") }
	add := func(set attribute.Set) {
		for _, a := range set.ToSlice() {
			labels[underscored(string(a.Key))] = true
		}
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		name := underscored(m.Name)
		if m.Unit == "s" {
			name += "_seconds"
		}
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			metrics[name+"_bucket"], metrics[name+"_count"], metrics[name+"_sum"] = true, true, true
			add(d.DataPoints[0].Attributes)
		case metricdata.Gauge[float64]:
			metrics[name] = true
			add(d.DataPoints[0].Attributes)
		case metricdata.Sum[int64]:
			if d.IsMonotonic {
				name += "_total"
			}
			metrics[name] = true
			for _, point := range d.DataPoints {
				add(point.Attributes)
			}
		}
	}
	return metrics, labels
}
