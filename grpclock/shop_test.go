package grpclock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/latchkit/latchkit/grpclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// syntaxes are the ways to write the shop's .proto file.
var syntaxes = []string{"proto2", "proto3", "editions"}

// shopFile is the shop's .proto file in a syntax. In proto3, and in editions by a feature, the fields of Order track no
// presence, but for serial; in proto2 all do.
func shopFile(syntax string) protoreflect.FileDescriptor {
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, changes ...func(*descriptorpb.FieldDescriptorProto)) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
		for _, change := range changes {
			change(f)
		}
		return f
	}
	of := func(name string) func(*descriptorpb.FieldDescriptorProto) {
		return func(f *descriptorpb.FieldDescriptorProto) { f.TypeName = proto.String(".shop." + name) }
	}
	repeated := func(f *descriptorpb.FieldDescriptorProto) {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	member := func(f *descriptorpb.FieldDescriptorProto) { f.OneofIndex = proto.Int32(0) }
	present := func(f *descriptorpb.FieldDescriptorProto) {
		switch syntax {
		case "proto3":
			f.Proto3Optional, f.OneofIndex = proto.Bool(true), proto.Int32(0)
		case "editions":
			f.Options = &descriptorpb.FieldOptions{Features: &descriptorpb.FeatureSet{
				FieldPresence: descriptorpb.FeatureSet_EXPLICIT.Enum()}}
		}
	}
	const (
		text    = descriptorpb.FieldDescriptorProto_TYPE_STRING
		message = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	)
	order := &descriptorpb.DescriptorProto{Name: proto.String("Order"), Field: []*descriptorpb.FieldDescriptorProto{
		field("id", 1, text),
		field("number", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64),
		field("serial", 3, descriptorpb.FieldDescriptorProto_TYPE_SINT32, present),
		field("token", 4, descriptorpb.FieldDescriptorProto_TYPE_BYTES),
		field("express", 5, descriptorpb.FieldDescriptorProto_TYPE_BOOL),
		field("kind", 6, descriptorpb.FieldDescriptorProto_TYPE_ENUM, of("Kind")),
		field("big", 7, descriptorpb.FieldDescriptorProto_TYPE_UINT64),
		field("fixed", 8, descriptorpb.FieldDescriptorProto_TYPE_FIXED32),
		field("weight", 9, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE),
	}}
	if syntax == "proto3" {
		order.OneofDecl = []*descriptorpb.OneofDescriptorProto{{Name: proto.String("_serial")}}
	}
	request := &descriptorpb.DescriptorProto{Name: proto.String("PayRequest"),
		Field: []*descriptorpb.FieldDescriptorProto{
			field("order", 1, message, of("Order")),
			field("account", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64, member),
			field("card", 3, text, member),
			field("tags", 4, text, repeated),
			field("orders", 5, message, of("Order"), repeated),
		},
		OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("payer")}},
	}
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("shop.proto"), Package: proto.String("shop"), Syntax: proto.String(syntax),
		EnumType: []*descriptorpb.EnumDescriptorProto{{Name: proto.String("Kind"), Value: []*descriptorpb.EnumValueDescriptorProto{
			{Name: proto.String("UNKNOWN"), Number: proto.Int32(0)}, {Name: proto.String("GIFT"), Number: proto.Int32(1)}}}},
		MessageType: []*descriptorpb.DescriptorProto{order, request},
	}
	if syntax == "editions" {
		file.Edition = descriptorpb.Edition_EDITION_2023.Enum()
		file.Options = &descriptorpb.FileOptions{Features: &descriptorpb.FeatureSet{
			FieldPresence: descriptorpb.FeatureSet_IMPLICIT.Enum()}}
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return d
}

// payRequest is a request in the syntax, from its JSON.
func payRequest(t testing.TB, file protoreflect.FileDescriptor, json string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(file.Messages().ByName("PayRequest"))
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	return m
}

var shopProto = shopFile("proto3")

const (
	methodPay    = "/shop.Orders/Pay"
	methodCancel = "/shop.Orders/Cancel"

	methodFollow   = "/shop.Orders/Follow" // streams both ways
	methodUnfollow = "/shop.Orders/Unfollow"
)

// shop is a server on a loopback port, with a connection to it.
type shop struct {
	t    testing.TB
	conn *grpc.ClientConn
}

// handlers are what the shop's methods do. A nil one does nothing well.
type handlers struct {
	unary  func(ctx context.Context, req *dynamicpb.Message) error
	stream func(ss grpc.ServerStream) error
}

// open serves with both interceptors, and further out those that are given.
func open(t testing.TB, h handlers, key grpclock.KeyFunc, opts ...grpclock.Option) *shop {
	t.Helper()
	return openWith(t, h, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(key, opts...)),
		grpc.ChainStreamInterceptor(grpclock.StreamServerInterceptor(key, opts...)),
	})
}

func openWith(t testing.TB, h handlers, server []grpc.ServerOption, client ...grpc.DialOption) *shop {
	t.Helper()
	return openServices(t, server, func(r grpc.ServiceRegistrar) { r.RegisterService(shopService(h), nil) }, client...)
}

// openServices serves what register registers, beside gRPC's own services.
func openServices(t testing.TB, server []grpc.ServerOption, register func(grpc.ServiceRegistrar), client ...grpc.DialOption) *shop {
	t.Helper()
	srv := grpc.NewServer(server...)
	register(srv)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	reflection.Register(srv)
	channelz.RegisterChannelzServiceToServer(srv)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(listener)
	}()
	client = append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(listener.Addr().String(), client...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		<-served
	})
	return &shop{t, conn}
}

func shopService(h handlers) *grpc.ServiceDesc {
	unary := func(name string) grpc.MethodDesc {
		handle := func(ctx context.Context, req any) (any, error) {
			if h.unary == nil {
				return &emptypb.Empty{}, nil
			}
			return &emptypb.Empty{}, h.unary(ctx, req.(*dynamicpb.Message))
		}
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, dec func(any) error, between grpc.UnaryServerInterceptor) (any, error) {
			req := dynamicpb.NewMessage(shopProto.Messages().ByName("PayRequest"))
			if err := dec(req); err != nil {
				return nil, err
			}
			if between == nil {
				return handle(ctx, req)
			}
			return between(ctx, req, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/" + name}, handle)
		}}
	}
	stream := func(name string) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, ss grpc.ServerStream) error {
				if h.stream == nil {
					return nil
				}
				return h.stream(ss)
			}}
	}
	return &grpc.ServiceDesc{ServiceName: "shop.Orders", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{unary("Pay"), unary("Cancel")},
		Streams: []grpc.StreamDesc{stream("Follow"), stream("Unfollow")},
	}
}

// call calls a unary method and returns its error.
func (s *shop) call(ctx context.Context, method, json string, opts ...grpc.CallOption) error {
	s.t.Helper()
	return s.conn.Invoke(ctx, method, payRequest(s.t, shopProto, json), &emptypb.Empty{}, opts...)
}

// follow opens a stream and sends the messages. The client's side stays open.
func (s *shop) follow(ctx context.Context, messages ...string) grpc.ClientStream {
	s.t.Helper()
	return s.stream(ctx, methodFollow, messages...)
}

func (s *shop) stream(ctx context.Context, method string, messages ...string) grpc.ClientStream {
	s.t.Helper()
	cs, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range messages {
		// io.EOF: the stream has ended already, and RecvMsg says how.
		if err := cs.SendMsg(payRequest(s.t, shopProto, m)); err != nil && !errors.Is(err, io.EOF) {
			s.t.Fatal(err)
		}
	}
	return cs
}

// receive is the handler's next message.
func receive(ss grpc.ServerStream) error {
	return ss.RecvMsg(dynamicpb.NewMessage(shopProto.Messages().ByName("PayRequest")))
}

// ended waits for the stream's end; nil is a status of OK.
func ended(cs grpc.ClientStream) error {
	for {
		switch err := cs.RecvMsg(&emptypb.Empty{}); {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// wantStatus fails unless err has the code and, when reason is not empty, an ErrorInfo with it.
func wantStatus(t testing.TB, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("status is %v, want %v (%v)", status.Code(err), code, err)
	}
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Reason == reason && info.Domain == grpclock.ErrorDomain {
			return
		}
	}
	if reason != "" {
		t.Fatalf("status %v has no reason %s", status.Convert(err).Proto(), reason)
	}
}

// retryInfo is the delay that a status advises, or -1.
func retryInfo(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration()
		}
	}
	return -1
}

// wait fails when nothing comes from c within 5 s.
func wait[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s has not come", what)
	}
	return v
}

// eventually fails unless ok within 5 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5s: %s", what)
		}
	}
}

// with returns a context that sends the metadata.
func with(pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), slices.Clone(pairs)...)
}

func order(id string) string { return fmt.Sprintf(`{"order":{"id":%q}}`, id) }
