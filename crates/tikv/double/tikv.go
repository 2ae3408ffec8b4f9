package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikvrpc"
)

// tikv hands the requests of transactions on to mocktikv.
type tikv struct {
	tikvpb.UnimplementedTikvServer
	client  *testutils.MockClient
	address string
}

// One request; what mocktikv answers has the type that the caller says.
func ask[Answer any](ctx context.Context, t *tikv, command tikvrpc.CmdType, region *kvrpcpb.Context, request any) (answer Answer, err error) {
	// It panics where TiKV answers with an error.
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v: %v", command, cause)
		}
	}()
	response, err := t.client.SendRequest(ctx, t.address, tikvrpc.NewRequest(command, request, *region), time.Minute)
	if err != nil {
		return answer, err
	}
	return response.Resp.(Answer), nil
}

func (t *tikv) KvGet(ctx context.Context, r *kvrpcpb.GetRequest) (*kvrpcpb.GetResponse, error) {
	answer, err := ask[*kvrpcpb.GetResponse](ctx, t, tikvrpc.CmdGet, r.Context, r)
	if err == nil {
		// TiKV says so; mocktikv knows no empty values, and leaves it at that.
		answer.NotFound = len(answer.Value) == 0 && answer.Error == nil && answer.RegionError == nil
	}
	return answer, err
}

func (t *tikv) KvBatchGet(ctx context.Context, r *kvrpcpb.BatchGetRequest) (*kvrpcpb.BatchGetResponse, error) {
	return ask[*kvrpcpb.BatchGetResponse](ctx, t, tikvrpc.CmdBatchGet, r.Context, r)
}

func (t *tikv) KvScan(ctx context.Context, r *kvrpcpb.ScanRequest) (*kvrpcpb.ScanResponse, error) {
	return ask[*kvrpcpb.ScanResponse](ctx, t, tikvrpc.CmdScan, r.Context, r)
}

func (t *tikv) KvPrewrite(ctx context.Context, r *kvrpcpb.PrewriteRequest) (*kvrpcpb.PrewriteResponse, error) {
	return ask[*kvrpcpb.PrewriteResponse](ctx, t, tikvrpc.CmdPrewrite, r.Context, r)
}

func (t *tikv) KvCommit(ctx context.Context, r *kvrpcpb.CommitRequest) (*kvrpcpb.CommitResponse, error) {
	return ask[*kvrpcpb.CommitResponse](ctx, t, tikvrpc.CmdCommit, r.Context, r)
}

func (t *tikv) KvBatchRollback(ctx context.Context, r *kvrpcpb.BatchRollbackRequest) (*kvrpcpb.BatchRollbackResponse, error) {
	return ask[*kvrpcpb.BatchRollbackResponse](ctx, t, tikvrpc.CmdBatchRollback, r.Context, r)
}

func (t *tikv) KvCheckTxnStatus(ctx context.Context, r *kvrpcpb.CheckTxnStatusRequest) (*kvrpcpb.CheckTxnStatusResponse, error) {
	answer, err := ask[*kvrpcpb.CheckTxnStatusResponse](ctx, t, tikvrpc.CmdCheckTxnStatus, r.Context, r)
	if err == nil && answer.LockTtl > 0 {
		// TiKV shows the lock that is still there.
		answer.LockInfo = &kvrpcpb.LockInfo{
			Key: r.PrimaryKey, PrimaryLock: r.PrimaryKey, LockVersion: r.LockTs, LockTtl: answer.LockTtl,
		}
	}
	return answer, err
}

func (t *tikv) KvResolveLock(ctx context.Context, r *kvrpcpb.ResolveLockRequest) (*kvrpcpb.ResolveLockResponse, error) {
	return ask[*kvrpcpb.ResolveLockResponse](ctx, t, tikvrpc.CmdResolveLock, r.Context, r)
}

func (t *tikv) KvScanLock(ctx context.Context, r *kvrpcpb.ScanLockRequest) (*kvrpcpb.ScanLockResponse, error) {
	return ask[*kvrpcpb.ScanLockResponse](ctx, t, tikvrpc.CmdScanLock, r.Context, r)
}
