package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// trace is one trace as Jaeger's API tells it.
type trace struct {
	ID        string `json:"traceID"`
	Spans     []*span
	Processes map[string]struct{ ServiceName string }
}

type span struct {
	ID         string `json:"spanID"`
	Name       string `json:"operationName"`
	Process    string `json:"processID"`
	References []struct {
		Kind    string `json:"refType"`
		TraceID string
		SpanID  string
	}
	Tags []struct {
		Key   string
		Value any
	}
}

// trace asks for the trace until its root has arrived, which is exported last.
func (j *jaeger) trace(ctx context.Context, id string) (found trace, err error) {
	err = poll(ctx, "trace "+id, func() error {
		var reply struct{ Data []trace }
		if err := j.get(ctx, "/api/traces/"+id, &reply); err != nil {
			return err
		}
		if len(reply.Data) != 1 {
			return fmt.Errorf("%d traces", len(reply.Data))
		}
		found = reply.Data[0]
		for _, s := range []string{"POST /orders/:orderID/pay", "lock.acquire", "lock.release"} {
			if len(found.named(s)) == 0 {
				return fmt.Errorf("no span %q among %d", s, len(found.Spans))
			}
		}
		return nil
	})
	return found, err
}

func (t trace) named(name string) (spans []*span) {
	for _, s := range t.Spans {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	return spans
}

func (s *span) parent() string { return s.reference("CHILD_OF") }

func (s *span) reference(kind string) string {
	for _, r := range s.References {
		if r.Kind == kind {
			return r.SpanID
		}
	}
	return ""
}

// path returns the names of the spans above s, from the root down, with the services they ran in.
func (t trace) path(s *span) string {
	here := t.Processes[s.Process].ServiceName + ": " + s.Name
	for _, above := range t.Spans {
		if above.ID == s.parent() {
			return t.path(above) + " > " + here
		}
	}
	return here
}

// judge looks for what a person would look for: each request is one trace down to Redis, and the slow one leads to the
// one that held it up.
func judge(traces []trace) error {
	var errs []error
	acquires := make(map[string]bool)
	held := 0
	for i, t := range traces {
		want := fmt.Sprintf("shop: POST /orders/:orderID/pay > shop: shop.Orders/Pay > orders-%d: shop.Orders/Pay > orders-%d: lock.acquire", i+1, i+1)
		acquire := t.named("lock.acquire")[0]
		acquires[acquire.ID] = true
		if got := t.path(acquire); got != want {
			errs = append(errs, fmt.Errorf("the way to the lock is %s, want %s", got, want))
		}
		commands := 0
		for _, s := range t.Spans {
			if strings.HasPrefix(s.Name, "eval") && s.parent() == acquire.ID {
				commands++
			}
			for _, tag := range s.Tags {
				if tag.Key == "db.statement" {
					errs = append(errs, fmt.Errorf("%s carries a statement, and so an owner", s.Name))
				}
			}
		}
		if commands == 0 {
			errs = append(errs, fmt.Errorf("trace %s has no command to Redis below its lock.acquire", t.ID))
		}
	}
	for _, t := range traces {
		if by := t.named("lock.acquire")[0].reference("FOLLOWS_FROM"); by != "" && acquires[by] {
			held++
		}
	}
	if held != 1 {
		errs = append(errs, fmt.Errorf("%d of the requests are linked to the one that held them up, want 1", held))
	}
	return errors.Join(errs...)
}
