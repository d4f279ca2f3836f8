// Package rpc makes gRPC methods of functions from text to text, so that the examples need no generated code.
package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Register has server answer fullMethod, such as "/shop.Orders/Pay", with handle. It is what protoc would have made of
//
//	service Orders { rpc Pay(google.protobuf.StringValue) returns (google.protobuf.StringValue); }
//
// so the text is the field "value" of the request.
func Register(server *grpc.Server, fullMethod string, handle func(ctx context.Context, text string) (string, error)) {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	run := func(ctx context.Context, req any) (any, error) {
		reply, err := handle(ctx, req.(*wrapperspb.StringValue).Value)
		return wrapperspb.String(reply), err
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: method,
			Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
				req := new(wrapperspb.StringValue)
				if err := decode(req); err != nil {
					return nil, err
				}
				if intercept == nil {
					return run(ctx, req)
				}
				return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: fullMethod}, run)
			},
		}},
	}, nil)
}

// Call calls a method that was registered by Register.
func Call(ctx context.Context, conn grpc.ClientConnInterface, fullMethod, text string) (string, error) {
	reply := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, fullMethod, wrapperspb.String(text), reply)
	return reply.Value, err
}
