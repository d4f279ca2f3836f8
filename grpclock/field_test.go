package grpclock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkit/latchkit/core"
	"github.com/latchkit/latchkit/grpclock"
)

// TestField reads the same requests in every syntax. Where they differ, it is by what the syntax can tell from not set.
func TestField(t *testing.T) {
	for _, c := range []struct {
		path, json, key string
		proto2          string // when it is not key
	}{
		{path: "order.id", json: `{"order":{"id":"42"}}`, key: "order.id:42"},
		{path: "order.id", json: `{"order":{"id":"a:b {x} \\"}}`, key: `order.id:a:b \(x\) \\`},
		{path: "order.id", json: `{"order":{"id":""}}`},
		{path: "order.id", json: `{"order":{}}`},
		{path: "order.id", json: `{}`},
		{path: "order.number", json: `{"order":{"number":"-9007199254740993"}}`, key: "order.number:-9007199254740993"},
		{path: "order.number", json: `{"order":{"number":"0"}}`, proto2: "order.number:0"},
		{path: "order.serial", json: `{"order":{"serial":0}}`, key: "order.serial:0"},
		{path: "order.serial", json: `{"order":{"serial":-7}}`, key: "order.serial:-7"},
		{path: "order.serial", json: `{"order":{"id":"42"}}`},
		{path: "order.token", json: `{"order":{"token":"AP8K"}}`, key: "order.token:\x00\xff\n"},
		{path: "order.token", json: `{"order":{"token":""}}`},
		{path: "order.express", json: `{"order":{"express":true}}`, key: "order.express:true"},
		{path: "order.express", json: `{"order":{"express":false}}`, proto2: "order.express:false"},
		{path: "order.kind", json: `{"order":{"kind":"GIFT"}}`, key: "order.kind:1"},
		{path: "order.kind", json: `{"order":{"kind":"UNKNOWN"}}`, proto2: "order.kind:0"},
		{path: "order.big", json: `{"order":{"big":"18446744073709551615"}}`, key: "order.big:18446744073709551615"},
		{path: "order.fixed", json: `{"order":{"fixed":4294967295}}`, key: "order.fixed:4294967295"},
		{path: "account", json: `{"account":"7"}`, key: "account:7"},
		{path: "account", json: `{"account":"0"}`, key: "account:0"},
		{path: "account", json: `{"card":"x"}`},
		{path: "card", json: `{"card":"x"}`, key: "card:x"},
		{path: "card", json: `{"card":""}`},
	} {
		for _, syntax := range syntaxes {
			t.Run(syntax+" "+c.path+" "+c.json, func(t *testing.T) {
				want := c.key
				if syntax == "proto2" && c.proto2 != "" {
					want = c.proto2
				}
				got, err := grpclock.Field(c.path)(context.Background(), payRequest(t, shopFile(syntax), c.json))
				if got != want || (err != nil) != (want == "") {
					t.Fatalf("got %q, %v; want %q", got, err, want)
				}
				if err != nil && !errors.Is(err, core.ErrInvalidKey) {
					t.Fatalf("%v is no ErrInvalidKey", err)
				}
			})
		}
	}
}

func TestFieldOfGeneratedMessages(t *testing.T) {
	for want, c := range map[string]struct {
		path string
		req  any
	}{
		"value:42":        {"value", wrapperspb.UInt64(42)},
		"payload.body:42": {"payload.body", &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte("42")}}},
		"payload.type:1":  {"payload.type", &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Type: 1}}},
		"number:3":        {"number", &descriptorpb.FieldDescriptorProto{Number: proto.Int32(3)}}, // proto2
	} {
		if got, err := grpclock.Field(c.path)(context.Background(), c.req); got != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if key, err := grpclock.Field("value")(context.Background(), (*wrapperspb.StringValue)(nil)); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("nil message: got %q, %v", key, err)
	}
}

// legacy is a message of the API before protoreflect, which gRPC's codec still carries.
type legacy struct {
	ID *string `protobuf:"bytes,1,opt,name=id"`
}

func (l *legacy) Reset()         { *l = legacy{} }
func (l *legacy) String() string { return "" }
func (*legacy) ProtoMessage()    {}

func TestFieldOfLegacyMessages(t *testing.T) {
	if got, err := grpclock.Field("id")(context.Background(), &legacy{ID: proto.String("42")}); got != "id:42" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := grpclock.Field("id")(context.Background(), &legacy{}); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestFieldThatTheTypeLacks: the programmer's mistake, which must not look like the client's.
func TestFieldThatTheTypeLacks(t *testing.T) {
	for _, path := range []string{"id", "order.Id", "order.id.x", "order", "orders", "orders.id", "tags", "order.weight", "tags.x"} {
		_, err := grpclock.Field(path)(context.Background(), payRequest(t, shopProto, `{"order":{"id":"42"},"tags":["a"]}`))
		if err == nil || errors.Is(err, core.ErrInvalidKey) || !strings.Contains(err.Error(), "shop.PayRequest") {
			t.Errorf("%s: got %v, want an error that names the type and is not the client's", path, err)
		}
	}
	if _, err := grpclock.Field("id")(context.Background(), "no message"); err == nil || errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("no message: got %v", err)
	}
}

func ExampleField() {
	request := &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte("42")}}

	fmt.Println(grpclock.Field("payload.body")(context.Background(), request))
	fmt.Println(grpclock.Named("order", grpclock.Field("payload.body"))(context.Background(), request))
	fmt.Println(grpclock.Field("payload.body")(context.Background(), &grpc_testing.SimpleRequest{}))
	// Output:
	// payload.body:42 <nil>
	// order:42 <nil>
	//  latchkit: field "payload.body" is missing or empty
}
